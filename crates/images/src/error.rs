//! Why an image is not there, in the words that a kubelet uses where it has some.

use std::{io, path::PathBuf, sync::Arc};

/// Why an image could not be resolved, imported or removed. Cloned, because everyone who waits for a pull gets its error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImageError {
    /// The reference is no image name.
    #[error("Failed to apply default image tag {reference:?}: couldn't parse image name {reference:?}: {reason}")]
    InvalidReference {
        /// What was asked for.
        reference: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The image may not be pulled and is not there.
    #[error("Container image {reference:?} is not present with pull policy of Never")]
    NeverPull {
        /// What was asked for.
        reference: String,
    },
    /// The registry does not have it.
    #[error(
        "failed to pull image {reference:?}: {what} not found in the registry: check the name and the tag, or import the image with `ferrovirt images import`"
    )]
    NotFound {
        /// What was asked for.
        reference: String,
        /// The manifest or blob that is missing.
        what: String,
    },
    /// The registry wants other credentials.
    #[error(
        "failed to pull image {reference:?}: pull access denied, repository does not exist or may require authorization: {reason}; add an imagePullSecret for {registry}"
    )]
    Unauthorized {
        /// What was asked for.
        reference: String,
        /// The registry.
        registry: String,
        /// What it said.
        reason: String,
    },
    /// The registry cannot be reached, or fails.
    #[error("failed to pull image {reference:?}: cannot reach {registry}: {reason}")]
    Unreachable {
        /// What was asked for.
        reference: String,
        /// The registry.
        registry: String,
        /// What happened.
        reason: String,
    },
    /// What was received or read is not a good image.
    #[error("image {reference:?} is invalid: {reason}")]
    Invalid {
        /// What was asked for.
        reference: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The image is in use.
    #[error("image {reference:?} is in use by {}", holders.join(", "))]
    InUse {
        /// The image.
        reference: String,
        /// Who has a lease.
        holders: Vec<String>,
    },
    /// There is no such image in the store.
    #[error("no image {reference:?} in the store")]
    Unknown {
        /// What was asked for.
        reference: String,
    },
    /// A file could not be read or written.
    #[error("cannot {operation} {}: {source}{}", path.display(), hint(source))]
    Storage {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
}

impl ImageError {
    /// The reason that a waiting container shows: `ErrImagePull`, `ErrImageNeverPull` or `InvalidImageName`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidReference { .. } => "InvalidImageName",
            Self::NeverPull { .. } => "ErrImageNeverPull",
            _ => "ErrImagePull",
        }
    }

    pub(crate) fn storage(operation: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Storage { operation, path: path.into(), source: Arc::new(source.into()) }
    }

    pub(crate) fn invalid(reference: &str, reason: impl Into<String>) -> Self {
        Self::Invalid { reference: reference.to_owned(), reason: reason.into() }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; remove images that nobody needs, or make room on the disk",
        _ => "",
    }
}
