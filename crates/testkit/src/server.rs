//! An API server in memory that knows our kinds, made cheaply: a run takes a fraction of a second, so its server must too.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use ferrovirt_api::crds::crds;
use ferrovirt_apiserver::cluster::{self, StartError};
use ferrovirt_apiserver::controllers::Housekeeper;
use ferrovirt_apiserver::registry::{Resource, custom};
use ferrovirt_apiserver::server::{Environment, Server};
use ferrovirt_reconcile::Clock;
use ferrovirt_virt_api::VirtAdmission;
use ferrovirt_virt_api::eviction::EvictionAdmission;
use jiff::Timestamp;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_util::sync::CancellationToken;

/// Our kinds as the server serves them. Reading the CRDs takes longer than a whole run, so it is done once.
static KINDS: LazyLock<Vec<(String, Vec<Resource>)>> = LazyLock::new(|| {
    let read = |crd| {
        let crd = serde_json::to_value(crd).ok()?;
        let name = crd["metadata"]["name"].as_str()?.to_owned();
        Some((name, custom::resources(&crd, 0).ok()?))
    };
    crds().into_iter().filter_map(read).collect()
});

/// Virtual time, and randomness that follows from a seed.
struct Seeded {
    clock: Clock,
    dice: Mutex<StdRng>,
}

impl Environment for Seeded {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn uid(&self) -> String {
        let number: u128 = self.dice.lock().random();
        let text = format!("{number:032x}");
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }

    fn name_suffix(&self) -> String {
        let number: u32 = self.dice.lock().random();
        format!("{:05}", number % 100_000)
    }

    /// No component here applies.
    fn tracks_fields(&self) -> bool {
        false
    }
}

/// Starts a server whose controllers run until `stop`, with nothing in it: everybody here may do everything, so the hundred roles
/// that every cluster has would only take time. `keys` may be shared by many.
pub(crate) fn start(keys: &Path, seed: u64, clock: Clock, stop: CancellationToken) -> Result<Arc<Server>, StartError> {
    let environment = Seeded { clock, dice: Mutex::new(StdRng::seed_from_u64(seed)) };
    let server = cluster::empty_in_memory(keys, Arc::new(environment))?;
    for (crd, resources) in KINDS.iter() {
        server.registry.set_custom(crd, resources.clone());
    }
    server.admission.add(Arc::new(VirtAdmission));
    server.admission.add(Arc::new(EvictionAdmission));
    Housekeeper::start_small(server.clone(), stop);
    Ok(server)
}
