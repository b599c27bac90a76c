//! Random trouble: components die, requests fail, and watches lag, repeat, skip, break and show the past.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::time::Instant;

use crate::component::Component;
use crate::course::Course;
use crate::world::{NAMESPACE, World};

/// Kinds whose watches misbehave.
const RESOURCES: [&str; 3] = ["kubevirt.io/virtualmachineinstances", "/pods", "/nodes"];
/// More of them, in a world with machines.
const MACHINE_RESOURCES: [&str; 2] = ["kubevirt.io/virtualmachines", "apps/controllerrevisions"];

/// And in one with moves.
const MOVE_RESOURCES: [&str; 1] = ["kubevirt.io/virtualmachineinstancemigrations"];

/// Makes trouble for this long, and then sets everything right again.
pub(crate) async fn run(world: &Arc<World>, components: &[Arc<Component>], course: &Course) {
    let machines = if course.machines.is_empty() { &[] } else { MACHINE_RESOURCES.as_slice() };
    let moves = if course.moves.is_empty() { &[] } else { MOVE_RESOURCES.as_slice() };
    let resources = [RESOURCES.as_slice(), machines, moves].concat();
    world.rough.store(!course.moves.is_empty() && !course.chaos.is_zero(), Ordering::Relaxed);
    let end = Instant::now() + course.chaos;
    while Instant::now() < end {
        world.pause(0..2_000).await;
        trouble(world, components, &resources).await;
    }
    settle(world, &resources).await;
}

async fn trouble(world: &Arc<World>, components: &[Arc<Component>], resources: &[&'static str]) {
    let faults = world.server.store.faults();
    let resource = resources[usize::try_from(world.roll(0..resources.len() as u64)).unwrap_or_default()];
    match world.roll(0..12) {
        0..4 => {
            let victim = world.roll(0..components.len() as u64);
            components[usize::try_from(victim).unwrap_or_default()].kill();
        }
        4..6 => {
            world.note(|| format!("watches of {resource} lag"));
            faults.hold(resource);
            world.pause(100..8_000).await;
            world.server.store.faults().release(resource);
        }
        6 => {
            world.note(|| format!("watches of {resource} repeat"));
            faults.repeat_every(resource, world.roll(1..4));
            world.pause(100..5_000).await;
            world.server.store.faults().repeat_every(resource, 0);
        }
        7 => {
            world.note(|| format!("watches of {resource} skip"));
            faults.drop_every(resource, world.roll(2..5));
            world.pause(100..5_000).await;
            world.server.store.faults().drop_every(resource, 0);
            // Nobody finds out by waiting: a server that lost events tells its clients to list again.
            list_again(world, resource).await;
        }
        8 => {
            let head = world.server.store.revision();
            let past = head.saturating_sub(world.roll(0..15)).max(world.server.store.compacted() + 1);
            world.note(|| format!("{resource} is listed as of {past} instead of {head}"));
            world.rewind(resource, past);
            world.pause(100..5_000).await;
            world.catch_up(resource);
        }
        9 => {
            world.note(|| format!("watches of {resource} break"));
            faults.disconnect(resource);
        }
        10 => {
            world.note(|| format!("watches of {resource} break, and have to list again"));
            list_again(world, resource).await;
        }
        _ => {
            world.note(|| "requests fail".to_owned());
            world.flaky.store(true, Ordering::Relaxed);
            world.pause(100..3_000).await;
            world.flaky.store(false, Ordering::Relaxed);
        }
    }
}

/// Breaks watches whose place in the history is gone.
async fn list_again(world: &Arc<World>, resource: &str) {
    // Something newer than everything that they have seen.
    if let Ok(maps) = world.server.internal("", "v1", "configmaps", "simulation") {
        let map = json!({"metadata": {"namespace": NAMESPACE, "generateName": "newer-"}});
        let _ = maps.create(map).await;
    }
    let _ = world.server.store.compact(world.server.store.revision()).await;
    world.server.store.faults().disconnect(resource);
}

/// Everything is as it should be, and everybody gets to see it.
async fn settle(world: &Arc<World>, resources: &[&'static str]) {
    world.note(|| "the trouble is over".to_owned());
    world.flaky.store(false, Ordering::Relaxed);
    world.rough.store(false, Ordering::Relaxed);
    world.server.store.faults().clear();
    for resource in resources {
        list_again(world, resource).await;
    }
}
