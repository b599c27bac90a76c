//! The runner with a controller whose world is scripted.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;
use crate::{backoff::Backoff, queue::Priority};

/// What the scripted controller sees, and so what it will do.
#[derive(Clone, Default)]
struct Script {
    view: Option<View>,
    hold: Option<Duration>,
    /// Runs that panic before the rest of the script is played.
    panics: u32,
    /// Failures of the status write.
    status_fails: bool,
}

#[derive(Clone, Default)]
struct View {
    plan: Vec<Step>,
    status: Option<&'static str>,
    wanted: Option<&'static str>,
    after_failure: Option<&'static str>,
    requeue: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Step {
    Works(&'static str),
    Fails(&'static str, Category),
}

#[derive(Clone, Default)]
struct Scripted {
    script: Arc<Mutex<Script>>,
    done: Arc<Mutex<Vec<String>>>,
}

impl Controller for Scripted {
    const NAME: &'static str = "scripted";
    type Key = u32;
    type View = View;
    type Action = Step;
    type Status = &'static str;

    fn hold(&self, _: &u32) -> Option<Duration> {
        self.script.lock().hold
    }

    fn observe(&self, _: &u32) -> Option<View> {
        let mut script = self.script.lock();
        if script.panics > 0 {
            script.panics -= 1;
            drop(script);
            panic!("poisonous object");
        }
        script.view.clone()
    }

    fn decide(view: &View) -> Plan<Step, &'static str> {
        Plan { actions: view.plan.clone(), status: view.wanted, requeue: view.requeue }
    }

    fn observed_status(view: &View) -> Option<&&'static str> {
        view.status.as_ref()
    }

    fn status_after(view: &View, _: &Failure) -> Option<&'static str> {
        view.after_failure
    }

    async fn write_status(&self, _: &View, status: &'static str) -> Result<(), Failure> {
        self.done.lock().push(format!("status {status}"));
        if self.script.lock().status_fails {
            return Err(Failure::new(Category::Conflict, "write the status", "stale"));
        }
        Ok(())
    }
}

impl Act<Scripted> for Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Works(name) | Self::Fails(name, _) => name,
        }
    }

    async fn act(self, controller: &Scripted, _: &u32) -> Result<(), Failure> {
        controller.done.lock().push(self.name().to_owned());
        match self {
            Self::Works(_) => Ok(()),
            Self::Fails(name, category) => Err(Failure::new(category, name, "scripted")),
        }
    }
}

fn scripted(view: View) -> Scripted {
    let controller = Scripted::default();
    controller.script.lock().view = Some(view);
    controller
}

async fn run_once(view: View) -> (&'static str, Vec<String>) {
    let controller = scripted(view);
    let label = reconcile(&controller, &1).await.label();
    let done = controller.done.lock().clone();
    (label, done)
}

#[tokio::test]
async fn actions_run_in_order_then_one_status_write() {
    let plan = vec![Step::Works("create"), Step::Works("label")];
    let view = View { plan, status: Some("old"), wanted: Some("new"), ..View::default() };
    let (label, done) = run_once(view).await;
    assert_eq!((label, done), ("success", vec!["create".into(), "label".into(), "status new".into()]));
}

#[tokio::test]
async fn the_first_failure_ends_the_run_without_the_planned_status() {
    let plan = vec![Step::Works("create"), Step::Fails("label", Category::Invalid), Step::Works("never")];
    let view = View { plan, wanted: Some("new"), ..View::default() };
    let (label, done) = run_once(view).await;
    assert_eq!((label, done), ("invalid", vec!["create".to_owned(), "label".to_owned()]));
}

#[tokio::test]
async fn a_failure_can_be_reported_and_is_not_reported_twice() {
    let plan = vec![Step::Fails("create", Category::Forbidden)];
    let view = View { plan, wanted: Some("fine"), after_failure: Some("broken"), ..View::default() };
    assert_eq!(run_once(view.clone()).await, ("forbidden", vec!["create".to_owned(), "status broken".to_owned()]));
    let view = View { status: Some("broken"), ..view };
    assert_eq!(run_once(view).await, ("forbidden", vec!["create".to_owned()]));
}

#[tokio::test]
async fn an_equal_status_is_not_written() {
    let view = View { status: Some("same"), wanted: Some("same"), ..View::default() };
    assert_eq!(run_once(view).await, ("success", vec![]));
}

#[tokio::test]
async fn a_failed_status_write_is_the_outcome() {
    let controller = scripted(View { wanted: Some("new"), ..View::default() });
    controller.script.lock().status_fails = true;
    assert_eq!(reconcile(&controller, &1).await.label(), "conflict");
}

#[tokio::test]
async fn nothing_to_see_and_held_back_do_nothing() {
    let controller = Scripted::default();
    assert!(matches!(reconcile(&controller, &1).await, Outcome::Done(None)));
    controller.script.lock().hold = Some(Duration::from_secs(3));
    assert!(matches!(reconcile(&controller, &1).await, Outcome::Held(limit) if limit == Duration::from_secs(3)));
}

/// Runs the controller on key 1 for `time` and returns what it did.
async fn run_for(controller: &Scripted, time: Duration) -> (Vec<String>, String) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let backoff = Backoff { base: Duration::from_secs(1), jitter: 0.0, ..Backoff::default() };
    let queue = metrics.queue("scripted", backoff);
    queue.add(&1, Priority::NORMAL);
    let stop = CancellationToken::new();
    let runner = Runner::new(controller.clone(), queue).workers(2).metrics(&metrics);
    let stopper = async {
        tokio::time::sleep(time).await;
        stop.cancel();
    };
    futures::future::join(runner.run(stop.clone()), stopper).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let results = text.lines().filter_map(|line| line.strip_prefix("ferrovirt_reconcile_results_total"));
    let mut results: Vec<_> = results.filter(|line| !line.ends_with(" 0")).collect();
    results.sort_unstable();
    let done = controller.done.lock().clone();
    (done, results.join("\n"))
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_comes_back_after_its_back_off() {
    let controller = scripted(View { plan: vec![Step::Fails("create", Category::Unavailable)], ..View::default() });
    // At 0, 1, 3 and 7 seconds.
    let (done, results) = run_for(&controller, Duration::from_secs(8)).await;
    assert_eq!(done.len(), 4);
    assert_eq!(results, r#"{name="scripted",result="unavailable"} 4"#);
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_key_waits_for_a_change() {
    let controller = scripted(View { plan: vec![Step::Fails("parse", Category::Hopeless)], ..View::default() });
    let (done, _) = run_for(&controller, Duration::from_secs(3600)).await;
    assert_eq!(done, ["parse"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_when_to_look_again() {
    let plan = vec![Step::Works("look")];
    let controller = scripted(View { plan, requeue: Some(Duration::from_secs(10)), ..View::default() });
    // At 0, 10, 20 and 30 seconds.
    let (done, _) = run_for(&controller, Duration::from_secs(35)).await;
    assert_eq!(done.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_one_key() {
    let controller = scripted(View { plan: vec![Step::Works("create")], ..View::default() });
    controller.script.lock().panics = 1;
    let (done, results) = run_for(&controller, Duration::from_secs(5)).await;
    assert_eq!(done, ["create"]);
    assert_eq!(results, "{name=\"scripted\",result=\"panic\"} 1\n{name=\"scripted\",result=\"success\"} 1");
}
