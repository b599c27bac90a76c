//! Two candidates and one lease, on a paused clock.

use std::{sync::Arc, time::Duration};

use ferrovirt_reconcile::{Clock, LeaderConfig, Led, run_while_leader};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake::{Effect, FakeApi};

const LEASE: &str = "/leases";

/// What the candidates tell, in order, and who leads right now.
#[derive(Clone, Default)]
struct Diary {
    entries: Arc<Mutex<Vec<String>>>,
    leading: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    fn write(&self, what: String) {
        self.entries.lock().push(what);
    }

    fn whats(&self) -> Vec<String> {
        self.entries.lock().clone()
    }
}

/// Notes the beginning and the end of a term, however it ends, and that no other term overlaps.
struct Term {
    diary: Diary,
    who: String,
}

impl Term {
    fn begin(diary: &Diary, who: &str) -> Self {
        diary.write(format!("{who} leads"));
        diary.leading.lock().push(who.to_owned());
        assert_eq!(diary.leading.lock().len(), 1, "two leaders");
        Self { diary: diary.clone(), who: who.to_owned() }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.diary.leading.lock().retain(|leader| *leader != self.who);
        self.diary.write(format!("{} ends", self.who));
    }
}

/// A candidate that leads until it is told to stop. Its wall clock is wrong by `skew` seconds.
fn candidate(api: &FakeApi, diary: &Diary, who: &'static str, skew: i64) -> (CancellationToken, JoinHandle<Led<()>>) {
    let stop = CancellationToken::new();
    let mut config = LeaderConfig::new("kubevirt", "virt-controller", who);
    config.clock = Clock::starting_at(Timestamp::from_second(1_800_000_000 + skew).unwrap());
    let (client, diary, told) = (api.client_of(who), diary.clone(), stop.clone());
    let run = tokio::spawn(async move {
        let work = |stop: CancellationToken| async move {
            let _term = Term::begin(&diary, who);
            stop.cancelled().await;
        };
        run_while_leader(client, config, told, work).await.unwrap()
    });
    (stop, run)
}

fn lease(api: &FakeApi) -> serde_json::Value {
    api.get("leases", "kubevirt", "virt-controller").unwrap()["spec"].clone()
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_leads_the_other_waits_and_a_clean_stop_hands_over_quickly() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    let (stop_a, a) = candidate(&api, &diary, "a", 0);
    seconds(1).await;
    let (stop_b, b) = candidate(&api, &diary, "b", 0);
    seconds(3600).await;
    assert_eq!(diary.whats(), ["a leads"]);
    let spec = lease(&api);
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"a".into(), &0.into()));
    assert_eq!(spec["leaseDurationSeconds"], 15);

    stop_a.cancel();
    assert_eq!(a.await.unwrap(), Led::Finished(()));
    seconds(3).await;
    assert_eq!(diary.whats(), ["a leads", "a ends", "b leads"]);
    assert_eq!(
        (lease(&api)["holderIdentity"].as_str(), lease(&api)["leaseTransitions"].as_i64()),
        (Some("b"), Some(1))
    );

    stop_b.cancel();
    assert_eq!(b.await.unwrap(), Led::Finished(()));
    assert_eq!(lease(&api)["holderIdentity"].as_str(), None);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_other_starts() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    // Clocks that are an hour off in either direction must not matter.
    let (_stop_a, a) = candidate(&api, &diary, "a", 3600);
    seconds(1).await;
    let (stop_b, b) = candidate(&api, &diary, "b", -3600);
    seconds(60).await;
    // Requests that neither fail nor return; `Term` sees to it that the terms do not overlap.
    api.disturb("a PUT", usize::MAX, Effect::Hang);
    api.disturb("a GET", usize::MAX, Effect::Hang);
    seconds(60).await;
    assert_eq!(a.await.unwrap(), Led::Lost);
    assert_eq!(diary.whats(), ["a leads", "a ends", "b leads"]);
    assert_eq!(lease(&api)["leaseTransitions"], 1);
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), Led::Finished(()));
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_renewals_are_all_refused_stops_too() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    let (_stop_a, a) = candidate(&api, &diary, "a", 0);
    seconds(1).await;
    let (stop_b, b) = candidate(&api, &diary, "b", 0);
    seconds(60).await;
    api.disturb("a PUT", usize::MAX, Effect::Refuse(500, "InternalError"));
    seconds(60).await;
    assert_eq!(a.await.unwrap(), Led::Lost);
    assert_eq!(diary.whats(), ["a leads", "a ends", "b leads"]);
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), Led::Finished(()));
}

#[tokio::test(start_paused = true)]
async fn hiccups_shorter_than_the_deadline_are_survived() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    let (stop_a, a) = candidate(&api, &diary, "a", 0);
    seconds(10).await;
    for effect in [Effect::Refuse(500, "InternalError"), Effect::Refuse(409, "Conflict"), Effect::LoseAnswer] {
        api.disturb(LEASE, 3, effect);
        seconds(30).await;
    }
    assert_eq!(diary.whats(), ["a leads"]);
    stop_a.cancel();
    assert_eq!(a.await.unwrap(), Led::Finished(()));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_holder_stops() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    let (_stop, a) = candidate(&api, &diary, "a", 0);
    seconds(10).await;
    let mut usurped = api.get("leases", "kubevirt", "virt-controller").unwrap();
    usurped["spec"]["holderIdentity"] = "administrator".into();
    api.put("leases", &usurped);
    seconds(5).await;
    assert_eq!(a.await.unwrap(), Led::Lost);
    assert_eq!(lease(&api)["holderIdentity"], "administrator");
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_before_winning_never_led() {
    let (api, diary) = (FakeApi::default(), Diary::default());
    let (stop_a, a) = candidate(&api, &diary, "a", 0);
    seconds(1).await;
    let (stop_b, b) = candidate(&api, &diary, "b", 0);
    seconds(1).await;
    stop_b.cancel();
    assert_eq!(b.await.unwrap(), Led::Never);
    stop_a.cancel();
    a.await.unwrap();
}
