//! When an image is fetched.

use crate::sources::{ImageProblem, PullPolicy};

/// The policy as Kubernetes defaults it: `latest`, or no tag at all, is fetched each time.
pub fn policy(written: Option<&str>, reference: &str) -> PullPolicy {
    match written {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if reference.contains('@') => PullPolicy::IfNotPresent,
        _ => {
            let last = reference.rsplit('/').next().unwrap_or(reference);
            let tag = last.split_once(':').map(|(_, tag)| tag);
            if matches!(tag, None | Some("latest")) { PullPolicy::Always } else { PullPolicy::IfNotPresent }
        }
    }
}

/// The reason that a kubelet gives.
pub fn reason(problem: &ImageProblem) -> &'static str {
    match problem {
        ImageProblem::Reference { .. } => "InvalidImageName",
        ImageProblem::NotPresent(_) => "ErrImageNeverPull",
        ImageProblem::Pull(_) => "ErrImagePull",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_fetched_each_time() {
        for reference in ["a", "a:latest", "host:5000/a"] {
            assert_eq!(policy(None, reference), PullPolicy::Always, "{reference}");
        }
        for reference in ["a:1", "host:5000/a:1", "a@sha256:00"] {
            assert_eq!(policy(None, reference), PullPolicy::IfNotPresent, "{reference}");
        }
        assert_eq!(policy(Some("Never"), "a"), PullPolicy::Never);
    }
}
