//! Answers recorded from kube-apiserver, given again by our validation.

use serde_json::json;

use super::*;
