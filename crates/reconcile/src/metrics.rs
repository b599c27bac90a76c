//! Metrics of queues and reconcilers, under the names that KubeVirt's dashboards and alerts already know.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{
    backoff::Backoff,
    controller::Category,
    queue::{Queue, QueueConfig, QueueHook, QueueKey},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueName {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    name: String,
    result: String,
}

type Durations = Family<QueueName, Histogram, fn() -> Histogram>;

/// From 10 ns to 10 s in steps of ten, as KubeVirt's.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 10))
}

/// The metrics of all queues and reconcilers of a process; clones are the same.
#[derive(Clone)]
pub struct Metrics {
    adds: Family<QueueName, Counter>,
    depth: Family<QueueName, Gauge>,
    queue_duration: Durations,
    work_duration: Durations,
    retries: Family<QueueName, Counter>,
    results: Family<ResultLabels, Counter>,
    running: Arc<Mutex<BTreeMap<String, Running>>>,
}

/// Asks a queue how long its running keys have been running.
type Running = Box<dyn Fn() -> Vec<Duration> + Send + Sync>;

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            adds: Family::default(),
            depth: Family::default(),
            queue_duration: Family::new_with_constructor(durations),
            work_duration: Family::new_with_constructor(durations),
            retries: Family::default(),
            results: Family::default(),
            running: Arc::default(),
        };
        let queues = registry.sub_registry_with_prefix("kubevirt_workqueue");
        queues.register("adds", "Keys that became ready to be worked on", metrics.adds.clone());
        queues.register("depth", "Keys that are ready and wait for a worker", metrics.depth.clone());
        queues.register(
            "queue_duration_seconds",
            "Time that a key was ready before a worker took it",
            metrics.queue_duration.clone(),
        );
        queues.register("work_duration_seconds", "Time that the work on a key took", metrics.work_duration.clone());
        queues.register("retries", "Keys scheduled again because the work on them failed", metrics.retries.clone());
        queues.register_collector(Box::new(InFlight(metrics.running.clone())));
        registry.register(
            "ferrovirt_reconcile_results",
            "Runs of a reconciler by result: success, held, or the category of the failure",
            metrics.results.clone(),
        );
        metrics
    }

    /// A queue that is measured under `name`.
    pub fn queue<K: QueueKey>(&self, name: &str, backoff: Backoff) -> Queue<K> {
        let labels = QueueName { name: name.to_owned() };
        let hook = Hook {
            adds: self.adds.get_or_create_owned(&labels),
            depth: self.depth.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
        };
        let queue = Queue::new(QueueConfig { backoff, hook: Box::new(hook) });
        let running = queue.clone();
        self.running.lock().insert(name.to_owned(), Box::new(move || running.running_for()));
        queue
    }

    /// Makes every result of the controller `name` visible as zero, so that rates start at the first failure.
    pub fn announce_results(&self, name: &str) {
        let failures = Category::ALL.into_iter().map(Category::label);
        for result in ["success", "held"].into_iter().chain(failures) {
            drop(self.results.get_or_create(&ResultLabels { name: name.to_owned(), result: result.to_owned() }));
        }
    }

    /// Counts one run of the controller `name`.
    pub fn count_result(&self, name: &str, result: &str) {
        self.results.get_or_create(&ResultLabels { name: name.to_owned(), result: result.to_owned() }).inc();
    }
}

/// Feeds one queue's events into its metrics.
struct Hook {
    adds: Counter,
    depth: Gauge,
    queue_duration: Histogram,
    work_duration: Histogram,
    retries: Counter,
}

impl Hook {
    fn set_depth(&self, depth: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }
}

impl QueueHook for Hook {
    fn became_ready(&self, depth: usize) {
        self.adds.inc();
        self.set_depth(depth);
    }

    fn taken(&self, waited: Duration, depth: usize) {
        self.queue_duration.observe(waited.as_secs_f64());
        self.set_depth(depth);
    }

    fn finished(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    fn retried(&self) {
        self.retries.inc();
    }
}

/// Computes at scrape time what only the present moment can tell.
struct InFlight(Arc<Mutex<BTreeMap<String, Running>>>);

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").finish()
    }
}

impl Collector for InFlight {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let in_flight: Vec<_> = {
            let queues = self.0.lock();
            queues.iter().map(|(name, running)| (name.clone(), running())).collect()
        };
        let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        let unfinished = |times: &[Duration]| times.iter().sum();
        gauges(
            &mut encoder,
            "longest_running_processor_seconds",
            "Time since the oldest work still in progress began",
            &in_flight,
            longest,
        )?;
        gauges(
            &mut encoder,
            "unfinished_work_seconds",
            "Time spent so far on all work in progress; a steady rise means stuck workers",
            &in_flight,
            unfinished,
        )
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    queues: &[(String, Vec<Duration>)],
    value: impl Fn(&[Duration]) -> Duration,
) -> fmt::Result {
    let kind = ConstGauge::new(0f64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (queue, times) in queues {
        let labels = QueueName { name: queue.clone() };
        ConstGauge::new(value(times).as_secs_f64()).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::queue::Priority;

    #[tokio::test(start_paused = true)]
    async fn the_text_that_prometheus_reads() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let queue = metrics.queue::<u32>("virt-controller-vm", Backoff { jitter: 0.0, ..Backoff::default() });
        for key in 0..3 {
            queue.add(&key, Priority::NORMAL);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        queue.next().await.unwrap().retry();
        let slow = queue.next().await.unwrap();
        tokio::time::advance(Duration::from_secs(4)).await;
        metrics.count_result("vm", "success");
        metrics.count_result("vm", Category::Conflict.label());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        slow.done();
        // Labelled series come in no fixed order.
        let mut lines: Vec<_> = text.lines().collect();
        lines
            .sort_unstable_by_key(|line| (line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ")).to_owned());
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn announced_results_exist_before_they_count() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.announce_results("vm");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"ferrovirt_reconcile_results_total{name="vm",result="unavailable"} 0"#), "{text}");
    }
}
