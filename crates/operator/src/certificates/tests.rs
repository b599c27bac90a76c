//! Certificates over weeks, on a clock that the tests move.

use serde_json::json;

use super::*;

const NAMES: [&str; 2] = ["virt-api.kubevirt.svc", "virt-api"];

/// Secrets and the published bundle, as the operator would keep them.
struct World {
    authority: Value,
    api: Value,
    published: String,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { authority: Value::Null, api: Value::Null, published: String::new(), now }
    }

    fn decide(&self) -> Decision {
        let names = NAMES.map(str::to_owned);
        let there = |secret: &Value| !secret.is_null();
        decide(&Situation {
            authority: Some(&self.authority).filter(|it| there(it)),
            published: &self.published,
            api: Some(&self.api).filter(|it| there(it)),
            names: &names,
            lifetimes: Lifetimes::default(),
            now: self.now,
        })
    }

    /// Does what is decided, as the operator would; tells what it was.
    fn step(&mut self) -> Option<Step> {
        let decision = self.decide();
        let (lifetimes, names) = (Lifetimes::default(), NAMES.map(str::to_owned));
        let data = |data: Result<serde_json::Map<String, Value>, IssueError>| json!({"data": data.unwrap()});
        match decision.step.as_ref() {
            None => {}
            Some(Step::MakeAuthority) => self.authority = data(authority_data(&lifetimes, self.now)),
            Some(Step::MakeSuccessor) => self.authority = data(successor_data(&self.authority, &lifetimes, self.now)),
            Some(Step::Promote) => self.authority = data(promoted_data(&self.authority, self.now)),
            Some(Step::IssueApi) => self.api = data(leaf_data(&self.authority, &names, &lifetimes, self.now)),
        }
        self.published = self.decide().bundle;
        decision.step
    }

    fn settle(&mut self) -> Vec<Step> {
        std::iter::from_fn(|| self.step()).collect()
    }

    fn issuer(&self) -> String {
        Facts::parse(&text(&self.api, CERTIFICATE).unwrap()).unwrap().issuer
    }
}

#[test]
fn a_new_installation_gets_everything_in_order() {
    let mut world = World::new();
    assert_eq!(world.settle(), [Step::MakeAuthority, Step::IssueApi]);
    let decision = world.decide();
    assert!(decision.ready);
    assert_eq!(decision.due, Some(world.now + SignedDuration::from_hours(24) * 4 / 5));
    let leaf = Facts::parse(&text(&world.api, CERTIFICATE).unwrap()).unwrap();
    assert_eq!(leaf.names, NAMES);
    assert_eq!(leaf.end, world.now + SignedDuration::from_hours(24));
}

#[test]
fn nothing_is_signed_by_an_authority_that_is_not_published() {
    let mut world = World::new();
    world.step();
    world.published = String::new();
    assert_eq!(world.decide().step, None);
    assert!(!world.decide().ready);
}

/// At every moment of a month virt-api's certificate is valid and its authority is in the bundle that was published before.
#[test]
fn a_month_passes_without_a_gap() {
    let mut world = World::new();
    world.settle();
    let (mut steps, mut authorities) = (Vec::new(), std::collections::BTreeSet::new());
    for _ in 0..30 * 24 * 6 {
        world.now += SignedDuration::from_mins(10);
        let known_before: Vec<String> =
            split(&world.published).iter().filter_map(|pem| Facts::parse(pem)).map(|facts| facts.subject).collect();
        steps.extend(world.settle());
        let leaf = Facts::parse(&text(&world.api, CERTIFICATE).unwrap()).unwrap();
        assert!(leaf.end > world.now && world.decide().ready);
        assert!(known_before.contains(&leaf.issuer), "signed by an authority that was not yet published");
        assert!(split(&world.published).len() <= 3);
        authorities.insert(world.issuer());
    }
    assert!(authorities.len() > 4, "{authorities:?}");
    let made = steps.iter().filter(|step| **step == Step::MakeSuccessor).count();
    assert_eq!(made, steps.iter().filter(|step| **step == Step::Promote).count());
    assert!(!steps.contains(&Step::MakeAuthority));
}

#[test]
fn an_operator_that_slept_too_long_starts_anew() {
    let mut world = World::new();
    world.settle();
    world.now += SignedDuration::from_hours(24 * 8);
    assert_eq!(world.settle(), [Step::MakeAuthority, Step::IssueApi]);
    assert!(world.decide().ready);
}

/// A certificate ends with its authority: issuing it again and again would not make it live longer.
#[test]
fn an_authority_that_is_about_to_end_signs_once() {
    let mut world = World::new();
    world.settle();
    world.now += SignedDuration::from_hours(24 * 7 - 3);
    let steps: Vec<Step> = std::iter::from_fn(|| world.step()).take(10).collect();
    assert_eq!(steps, [Step::MakeSuccessor, Step::IssueApi]);
    world.now += SignedDuration::from_mins(11);
    let steps: Vec<Step> = std::iter::from_fn(|| world.step()).take(10).collect();
    assert_eq!(steps, [Step::Promote, Step::IssueApi]);
}

#[test]
fn damage_is_repaired() {
    let mut world = World::new();
    world.settle();
    world.api["data"][KEY] = "bm8ga2V5".into();
    assert_eq!(world.settle(), [Step::IssueApi]);
    world.api["data"][CERTIFICATE] = "!".into();
    assert_eq!(world.settle(), [Step::IssueApi]);
    world.authority["data"][CERTIFICATE] = Value::Null;
    world.now += SignedDuration::from_secs(1);
    assert_eq!(world.settle(), [Step::MakeAuthority, Step::IssueApi]);
}

#[test]
fn other_names_need_another_certificate() {
    let mut world = World::new();
    world.settle();
    let names = ["virt-api.elsewhere.svc".to_owned()];
    let decision = decide(&Situation {
        authority: Some(&world.authority),
        published: &world.published,
        api: Some(&world.api),
        names: &names,
        lifetimes: Lifetimes::default(),
        now: world.now,
    });
    assert_eq!(decision.step, Some(Step::IssueApi));
}
