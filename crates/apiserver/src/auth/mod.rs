//! Who is asking, and may they: identities, credentials, RBAC and the review APIs.
//!
//! Everything here is a function of its arguments (the files of [`pki`] apart), so the request path decides when to
//! call what:
//!
//! 1. [`authenticate`] turns a connection's certificate and a request's headers into a [`UserInfo`];
//! 2. [`rbac`] answers whether that user may do what the request asks;
//! 3. [`reviews`] serves the same two questions as API objects.

pub mod authenticate;
pub mod bootstrap;
pub mod impersonate;
pub mod kubeconfig;
pub mod pki;
mod private_file;
mod quote;
pub mod rbac;
pub mod reviews;
mod subject;
mod tls;
pub mod token;
pub mod user;

pub use pki::{Identity, Pki, PkiError};
pub use rbac::{Attributes, Authorizer, Decision, RbacIndex};
pub use tls::{AnyClientCertificate, Peer};
pub use token::{Lookup, TokenError, Tokens};
pub use user::UserInfo;
