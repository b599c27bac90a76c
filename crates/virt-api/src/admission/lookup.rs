//! The other objects that a judgement needs, read from whichever cluster this is.

use ferrovirt_api::decode;
use ferrovirt_apiserver::status::ApiResult;
use serde_json::Value;

use super::review::{Needs, Others};
use crate::cluster::{Cluster, Kind, Object};

/// Looks up what [`review::needs`](super::review::needs) asks for.
pub(crate) async fn look_up(cluster: &dyn Cluster, needs: Needs<'_>) -> ApiResult<Others> {
    let mut others = Others::default();
    match needs {
        Needs::Nothing => {}
        Needs::Guest { namespace, name } => {
            let guest = cluster.get(Object { kind: Kind::Guest, namespace, name }).await?;
            others.guest = guest.and_then(|guest| decode(&guest).ok());
            let migrations = cluster.list(Kind::Migration, namespace, "").await?;
            let of_guest = migrations.into_iter().filter(|migration| migration["spec"]["vmiName"] == name);
            others.migrations = of_guest.filter_map(|migration| decode(&migration).ok()).collect();
        }
        Needs::Installations => {
            let installations = cluster.list(Kind::Configuration, "", "").await?;
            others.installations = installations.iter().map(place).collect();
        }
        Needs::Nodes => others.lacks_kvm = cluster.lacks_kvm(),
        Needs::Workloads => {
            for kind in [Kind::Machine, Kind::Guest] {
                others.workloads += cluster.list(kind, "", "").await?.len();
            }
        }
    }
    Ok(others)
}

fn place(object: &Value) -> String {
    let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}
