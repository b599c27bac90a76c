//! The CRDs of all kinds, made from the types.
//!
//! `kinds` says what each kind is called and shown as; [`structural`] turns the schema that the types describe into
//! the narrower form that Kubernetes stores and checks.

mod kinds;
pub mod structural;

use ferrovirt_kubernetes::CustomResourceDefinition;

/// The CRDs of every kind in this crate.
///
/// # Panics
///
/// Never for what is compiled in: the tests build every CRD.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    kinds::all().into_iter().map(|kind| kind.definition()).collect()
}
