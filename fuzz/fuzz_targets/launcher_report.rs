//! What a launcher says of its guest. A guest that broke out of its QEMU is such a launcher, and says what it likes; the node's
//! handler must stay on its feet, and must not grow the guest's object without end.
//!
//! Input: the report as JSON.
#![no_main]

use std::sync::{Arc, LazyLock};

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_virt_handler::vmi::{View, decide};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

static VMI: LazyLock<Arc<VirtualMachineInstance>> = LazyLock::new(|| {
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "guest", "namespace": "default", "uid": "u", "labels": {"kubevirt.io/nodeName": "node1"}},
        "spec": {
            "domain": {"devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            }},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
        },
        "status": {"phase": "Running", "nodeName": "node1"},
    });
    Arc::new(serde_json::from_value(vmi).expect("this is a guest"))
});

fuzz_target!(|input: &[u8]| {
    let Ok(report) = serde_json::from_slice(input) else { return };
    let view = View {
        vmi: VMI.clone(),
        pod: None,
        report: Some(report),
        reachable: true,
        since_progress: None,
        node: "node1".to_owned(),
        host_model: Some(false),
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let plan = decide(&view);
    if let Some(status) = &plan.status {
        let size = serde_json::to_vec(status).expect("a status is JSON").len();
        assert!(size <= 4096 + 8 * input.len(), "{size} bytes of status from {} bytes", input.len());
    }
});
