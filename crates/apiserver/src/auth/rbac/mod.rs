//! Role-based access control as pure functions over an index of roles and bindings.
//!
//! ```text
//! Role, ClusterRole ─┐
//!                    ├─ RbacIndex::apply ─► by subject ─► authorize / rules_for
//! bindings ──────────┘                                      │
//!                                        escalation::check_write (may only grant what one has)
//! ```
//!
//! Nothing is ever denied by a rule: rules add up, and what no rule allows is refused.

pub mod aggregation;
mod attributes;
pub mod escalation;
mod index;
mod missing;
mod rule;

pub use attributes::{Attributes, Decision, forbidden_because, forbidden_message};
pub use index::{RbacIndex, RbacKind, RbacObjectError, ResolvedRules, RoleRef, UnresolvedRole};
pub use rule::PolicyRule;

use super::user::UserInfo;

/// Who can answer whether a user may do something. The index does; a test or a simulation may say yes to all.
pub trait Authorizer {
    /// Whether `user` may do this.
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision;

    /// Everything that `user` may do in `namespace`.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> ResolvedRules;
}

impl Authorizer for RbacIndex {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        RbacIndex::authorize(self, user, attributes)
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> ResolvedRules {
        RbacIndex::rules_for(self, user, namespace)
    }
}

impl<T: Authorizer + ?Sized> Authorizer for parking_lot::RwLock<T> {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.read().authorize(user, attributes)
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> ResolvedRules {
        self.read().rules_for(user, namespace)
    }
}
