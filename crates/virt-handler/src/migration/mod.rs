//! Guests that move between nodes: this node's part, on either side.
//!
//! | file | what |
//! |---|---|
//! | [`record`] | a move as the guest's object tells it |
//! | [`source`] | a guest of this node that moves away: part of the controller of guests |
//! | [`target`] | guests that move here: a controller of its own, until it writes that the guest is ours |
//! | [`departed`] | launchers whose guest left while they were in doubt |
//! | [`proxy`] | the connections of a move, from launcher to launcher |
//! | [`options`] | how a move is done |
//! | [`progress`] | how far it is |
//! | [`news`] | what people are told |
//!
//! Who may run the guest when is not decided here, but by [`ferrovirt_handover`].

pub(crate) mod departed;
pub(crate) mod news;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod proxy;
pub(crate) mod record;
pub(crate) mod source;
pub(crate) mod target;
