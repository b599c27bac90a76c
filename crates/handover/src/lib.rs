//! How a guest changes hands: the judgement behind a live migration. Pure: no IO, no clock, no chance.
//!
//! ```text
//!   source launcher ══ link ══ target launcher      two state machines: [`Source`], [`Target`]
//!        │                          │
//!   source handler             target handler       judgements on the guest's object: [`at_source`], [`at_target`]
//!        └────────── object ────────┘
//! ```
//!
//! The rule that everything follows from: **the target runs the guest only after the source's launcher told it to, once, and from that
//! moment the source's launcher lets its own copy run again only on the word that the target never ran it.** Nobody's silence counts as a
//! word. In between the source is [in doubt](SourceStage::Doubtful): its copy stands still, whole, and waits.
//!
//! | who | says | and then |
//! |---|---|---|
//! | source launcher | `Finish`, at most once in a move | never runs its copy again unless it hears `Never` |
//! | target launcher | `Started` or `Never`, whichever was first, for ever | `Never`: its copy is gone, a late `Finish` changes nothing |
//! | target handler | the object's `nodeName`, once, when its launcher has started | the guest is its |
//! | target handler | `failed` with `sourceMayResume`, when its launcher has said `Never` | a source in doubt may go on |
//! | source handler | `failed` with `sourceMayResume`, when its launcher has kept the guest | the target is tidied up |
//! | controller | a new record, only when the guest has moved or the old one says `sourceMayResume` | whoever is in doubt about an older move of a guest that is still here may go on |
//!
//! A link that breaks before `Finish` ends the move at both ends by itself. A link that breaks after it is made again, and the source asks
//! [`ToTarget::Query`]; should there never be another link, the object carries the word. When the target's launcher died without a word
//! after `Finish`, nobody can know whether it ran: then the guest is [lost](Outcome::Lost), and the object says so.
//!
//! libvirt's own managed migration decides differently: a source that hears nothing runs on. That is a second copy when only the answer
//! was lost; so its steps (begin, prepare, perform, finish, confirm) are called one by one, and these machines decide about each.

mod judge;
mod source;
mod target;

use serde::{Deserialize, Serialize};

pub use judge::{
    EndedSourceOrder, Record, SourceOrder, SourceWords, TargetOrder, TargetSeen, at_ended_source, at_source,
    at_source_of_older, at_target,
};
pub use source::{Outcome, Source, SourceAction, SourceInput, SourceStage};
pub use target::{Target, TargetAction, TargetInput, TargetStage};

/// What the source's launcher says to the target's. Payloads (libvirt's cookies, the domain) travel beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToTarget {
    /// Get ready to receive.
    Prepare,
    /// Everything was sent; run the guest.
    Finish,
    /// The answer to `Finish` was lost: which one was it?
    Query,
}

/// What the target's launcher answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToSource {
    /// Ready to receive.
    Prepared,
    /// The guest runs here.
    Started,
    /// The guest does not run here and never will, for this reason.
    Never(String),
}

/// What a handler tells its launcher that is in doubt, because the object says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The target runs the guest: the object names its node.
    Started,
    /// The target never ran it: the object allows the source to go on.
    Never,
    /// Nobody will ever know: the target is gone without a word.
    Lost,
}
