//! The wire: what requests ask for and in which form answers go back.

pub mod body;
pub mod info;
pub mod negotiate;
pub mod options;
pub mod respond;
