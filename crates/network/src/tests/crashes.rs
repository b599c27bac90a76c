//! A crash after any change is finished by the next run, and a finished pod is left alone.

use serde_json::{Value, json};

use super::pod::{Addresses, Pod, plans};
use crate::{ChangeError, NetworkError};

async fn survives_every_crash(interface: Value) {
    let plans = plans(&interface);
    let pod = Pod::new(Addresses::Both);
    let (state, changes) = pod.set_up_within(&plans, usize::MAX).await.unwrap();
    let snapshot = pod.snapshot();
    assert!(changes > 5, "{changes}");
    assert_eq!(pod.set_up_within(&plans, usize::MAX).await.unwrap(), (state.clone(), 0), "all was done");
    assert_eq!(pod.snapshot(), snapshot);

    for crash in 0..changes {
        let pod = Pod::new(Addresses::Both);
        let error = pod.set_up_within(&plans, crash).await.unwrap_err();
        assert!(matches!(error, NetworkError::Change { source: ChangeError::Stopped, .. }), "{error}");
        let (again, rest) = pod.set_up_within(&plans, usize::MAX).await.unwrap();
        assert_eq!(again, state, "after a crash after {crash} changes");
        // Rules that were set without a note of it are set again.
        assert!((changes - crash..=changes - crash + 1).contains(&rest), "{rest} after a crash after {crash} changes");
        assert_eq!(pod.snapshot(), snapshot, "after a crash after {crash} changes");
    }
}

#[tokio::test]
async fn masquerade_survives_every_crash() {
    survives_every_crash(json!({"masquerade": {}})).await;
}

#[tokio::test]
async fn bridge_survives_every_crash() {
    survives_every_crash(json!({"bridge": {}})).await;
}
