//! What one case uses.

use anyhow::{Context, Result};
use blackbox::cluster::{Answer, GUESTS, SUBRESOURCES};
use blackbox::manifest::Manifest;
use blackbox::program::Program;
use blackbox::scene::Scene;
use http::Method;
use serde_json::{Value, json};

use crate::machine::Machine;

/// A case's surroundings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) kubectl: Program,
    pub(crate) virtctl: Program,
}

impl Stage {
    /// Creates a virtual machine whose guests are as in the manifest.
    pub(crate) async fn create(&self, strategy: &str, manifest: &Manifest) -> Result<Machine> {
        self.create_object(&machine(strategy, manifest)).await
    }

    /// Creates a virtual machine from its object.
    pub(crate) async fn create_object(&self, object: &Value) -> Result<Machine> {
        let created = self.scene.cluster.create(&self.scene.path(GUESTS, "virtualmachines"), object).await?;
        let name = created["metadata"]["name"].as_str().context("a machine without a name")?;
        Ok(Machine { stage: self.clone(), name: name.to_owned() })
    }

    /// A virtual machine that is there, or will be.
    pub(crate) fn machine(&self, name: &str) -> Machine {
        Machine { stage: self.clone(), name: name.to_owned() }
    }

    /// Sends a request to a subresource, `virtualmachines/NAME/start` for example.
    pub(crate) async fn subresource(&self, method: Method, what: &str, body: &Value) -> Result<Answer> {
        let body = (!body.is_null()).then_some(body);
        self.scene.cluster.answer(method, &self.scene.path(SUBRESOURCES, what), body).await
    }
}

/// The object of a virtual machine whose guests are as in the manifest.
pub(crate) fn machine(strategy: &str, manifest: &Manifest) -> Value {
    let guest = manifest.json();
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": guest["metadata"]["name"]},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"made-by": "suite"}},
                "spec": guest["spec"],
            },
        },
    })
}
