//! How many guests move at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use blackbox::guest::Guest;
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The most that were seen at once.
#[derive(Debug, Default)]
struct Most {
    all: usize,
    of_a_node: usize,
}

impl Most {
    /// Looks at all moves; whether they are over. One that failed is an error.
    fn look(&mut self, moves: &[Value], sources: &HashMap<String, String>) -> Result<bool> {
        let phase = |one: &Value| one["status"]["phase"].as_str().unwrap_or_default().to_owned();
        if let Some(failed) = moves.iter().find(|one| phase(one) == "Failed") {
            bail!("a move failed: {}", failed["status"]["migrationState"]["failureReason"]);
        }
        let mut of_nodes: HashMap<&str, usize> = HashMap::new();
        for one in moves.iter().filter(|one| !matches!(phase(one).as_str(), "" | "Pending" | "Succeeded")) {
            let guest = one["spec"]["vmiName"].as_str().unwrap_or_default();
            *of_nodes.entry(sources.get(guest).map_or("", String::as_str)).or_default() += 1;
        }
        self.all = self.all.max(of_nodes.values().sum());
        self.of_a_node = self.of_a_node.max(of_nodes.into_values().max().unwrap_or_default());
        Ok(moves.iter().all(|one| phase(one) == "Succeeded"))
    }
}

/// Guests that were never run: many of them fit, and their moves are all about the order.
async fn guests(stage: &Stage, count: usize) -> Result<Vec<Guest>> {
    let mut guests = Vec::new();
    for number in 0..count {
        let manifest = Manifest::kernel(&format!("guest-{number}"))
            .with("/spec/startStrategy", json!("Paused"))
            .with("/spec/domain/memory/guest", json!("64Mi"))
            .with("/spec/domain/resources", json!({"requests": {"cpu": "10m"}}));
        guests.push(stage.scene.start(manifest.json()).await?);
    }
    for guest in &guests {
        guest.reach("Running", 240).await?;
        guest.condition("LiveMigratable", "True", 30).await?;
    }
    Ok(guests)
}

/// Moves all at once and looks how many of them do.
async fn move_all(stage: &Stage, guests: &[Guest]) -> Result<Most> {
    let mut sources = HashMap::new();
    for guest in guests {
        sources.insert(guest.name.clone(), guest.node().await?);
    }
    for guest in guests {
        guest.migrate().await?;
    }
    let mut most = Most::default();
    let deadline = Instant::now() + Duration::from_secs(420);
    while !most.look(&stage.migrations().await?, &sources)? {
        if Instant::now() > deadline {
            bail!("not all moves have ended");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for guest in guests {
        if sources.get(&guest.name) == Some(&guest.node().await?) {
            bail!("guest {} is where it was", guest.name);
        }
        stage.tidy(guest).await?;
    }
    Ok(most)
}

pub(super) async fn twelve(stage: Stage) -> Result<()> {
    let guests = guests(&stage, 12).await?;
    let most = move_all(&stage, &guests).await?;
    if most.all > 5 || most.of_a_node > 2 || most.all < 2 {
        bail!("with the limits 5 and 2, there were {most:?}");
    }
    Ok(())
}

pub(super) async fn changed(stage: Stage) -> Result<()> {
    let guests = guests(&stage, 5).await?;
    let settings = json!({"parallelMigrationsPerCluster": 2, "parallelOutboundMigrationsPerNode": 4});
    let most = stage.with_settings(settings, move_all(&stage, &guests)).await?;
    if most.all != 2 {
        bail!("with the limits 2 and 4, there were {most:?}");
    }
    Ok(())
}
