//! Which of some rights somebody does not have.
//!
//! A rule of a few kilobytes speaks of a million combinations of group, resource, name and verb, so they are not looked at
//! one by one: values that the same of the owned rules cover are one value as far as coverage goes, and of those there
//! are few.

use std::collections::{BTreeMap, HashMap};

use super::rule::{ALL, PolicyRule, url_covers};

/// How many missing rights a message lists.
const LISTED: usize = 100;
/// How many combinations are looked at in all. Whoever has so many different rights that this is not enough cannot pass them on at once.
const LOOKED_AT: usize = 1_000_000;

/// Rights that are missing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Missing {
    /// Some of them, as messages write them: sorted, each once.
    pub(super) listed: Vec<String>,
    /// How many more there are, at least.
    pub(super) more: usize,
}

impl Missing {
    /// Whether nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.more == 0
    }
}

/// What of `wanted` nobody has who has `owned`.
pub(super) fn missing(owned: &[PolicyRule], wanted: &[PolicyRule]) -> Missing {
    let owned = Owned::of(owned);
    let mut found = Found::default();
    for rule in wanted {
        owned.resources(rule, &mut found);
        owned.urls(rule, &mut found);
    }
    let on_resources = found.verbs.into_iter().map(|((group, resource, name), verbs)| PolicyRule {
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        api_groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        resource_names: name.into_iter().map(str::to_owned).collect(),
        ..PolicyRule::default()
    });
    let mut listed: Vec<String> = on_resources.chain(found.urls).map(|rule| rule.describe()).collect();
    listed.sort_unstable();
    listed.dedup();
    Missing { listed, more: found.more }
}

/// A set of owned rules, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rules(Vec<u64>);

impl Rules {
    fn insert(&mut self, rule: usize) {
        if self.0.len() <= rule / 64 {
            self.0.resize(rule / 64 + 1, 0);
        }
        self.0[rule / 64] |= 1 << (rule % 64);
    }

    fn extend(&mut self, other: Option<&Self>) {
        for (index, bits) in other.iter().flat_map(|other| other.0.iter().enumerate()) {
            if self.0.len() <= index {
                self.0.resize(index + 1, 0);
            }
            self.0[index] |= bits;
        }
    }

    fn both(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    fn shares_none_with(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & b == 0)
    }
}

/// Which of the owned rules cover a value of one field.
#[derive(Default)]
struct Field<'a> {
    naming: HashMap<&'a str, Rules>,
    /// Rules that cover every value.
    all: Rules,
}

impl<'a> Field<'a> {
    fn add(&mut self, rule: usize, values: &'a [String]) {
        for value in values {
            self.naming.entry(value).or_default().insert(rule);
            if value == ALL {
                self.all.insert(rule);
            }
        }
    }

    fn covering(&self, value: &str) -> Rules {
        let mut rules = self.all.clone();
        rules.extend(self.naming.get(value));
        rules
    }
}

/// Owned rules, by what they cover.
#[derive(Default)]
struct Owned<'a> {
    verbs: Field<'a>,
    groups: Field<'a>,
    resources: Field<'a>,
    names: Field<'a>,
    /// Rules that do not name objects.
    any_name: Rules,
    urls: Vec<(usize, &'a str)>,
}

/// Values of one field that the same rules cover, and where they stand in it.
type Alike<'v> = Vec<(Rules, Vec<(usize, &'v str)>)>;

impl<'a> Owned<'a> {
    fn of(rules: &'a [PolicyRule]) -> Self {
        let mut owned = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            owned.verbs.add(index, &rule.verbs);
            owned.groups.add(index, &rule.api_groups);
            owned.resources.add(index, &rule.resources);
            owned.names.add(index, &rule.resource_names);
            if rule.resource_names.is_empty() {
                owned.any_name.insert(index);
            }
            owned.urls.extend(rule.non_resource_urls.iter().map(|url| (index, url.as_str())));
        }
        // Of names, a star is a name like others.
        owned.names.all = owned.any_name.clone();
        owned
    }

    fn covering_resource(&self, wanted: &str) -> Rules {
        let mut rules = self.resources.covering(wanted);
        if let Some((_, subresource)) = wanted.split_once('/') {
            rules.extend(self.resources.naming.get(format!("*/{subresource}").as_str()));
        }
        rules
    }

    fn resources<'v>(&self, rule: &'v PolicyRule, found: &mut Found<'v>) {
        let groups = alike(&rule.api_groups, |group| self.groups.covering(group));
        let resources = alike(&rule.resources, |resource| self.covering_resource(resource));
        let verbs = alike(&rule.verbs, |verb| self.verbs.covering(verb));
        let names = alike(&rule.resource_names, |name| self.names.covering(name));
        let any = [(self.any_name.clone(), Vec::new())];
        let names = if names.is_empty() { &any[..] } else { &names[..] };
        let combinations =
            [groups.len(), resources.len(), names.len(), verbs.len()].into_iter().fold(1, usize::saturating_mul);
        found.looked_at = found.looked_at.saturating_add(combinations);
        if found.looked_at > LOOKED_AT {
            found.more = found.more.saturating_add(combinations);
            return;
        }
        for (of_group, groups) in &groups {
            for (of_resource, resources) in &resources {
                let of_both = of_group.both(of_resource);
                for (of_name, names) in names {
                    let of_all = of_both.both(of_name);
                    let lacking = verbs.iter().filter(|(of_verb, _)| of_verb.shares_none_with(&of_all));
                    // There may be many of them; no more than these are ever shown.
                    let mut lacking: Vec<_> =
                        lacking.flat_map(|(_, verbs)| verbs.iter().take(LISTED)).copied().collect();
                    if !lacking.is_empty() {
                        lacking.sort_unstable();
                        lacking.truncate(LISTED);
                        found.add([groups, resources, names], &lacking);
                    }
                }
            }
        }
    }

    fn urls<'v>(&self, rule: &'v PolicyRule, found: &mut Found<'v>) {
        let verbs = alike(&rule.verbs, |verb| self.verbs.covering(verb));
        for url in &rule.non_resource_urls {
            let mut covering = Rules::default();
            let owned = self.urls.iter().filter(|(_, owned)| url_covers(owned, url));
            owned.for_each(|(rule, _)| covering.insert(*rule));
            for (_, verbs) in verbs.iter().filter(|(of_verb, _)| of_verb.shares_none_with(&covering)) {
                let room = LISTED.saturating_sub(found.len()).min(verbs.len());
                found.more = found.more.saturating_add(verbs.len() - room);
                found.urls.extend(verbs[..room].iter().map(|(_, verb)| PolicyRule {
                    verbs: vec![(*verb).to_owned()],
                    non_resource_urls: vec![url.clone()],
                    ..PolicyRule::default()
                }));
            }
        }
    }
}

fn alike<'v>(values: &'v [String], covering: impl Fn(&str) -> Rules) -> Alike<'v> {
    let mut places = HashMap::new();
    let mut alike = Alike::new();
    for (index, value) in values.iter().enumerate() {
        let rules = covering(value);
        let place = *places.entry(rules).or_insert_with_key(|rules| {
            alike.push((rules.clone(), Vec::new()));
            alike.len() - 1
        });
        alike[place].1.push((index, value));
    }
    alike
}

/// What is missing, so far.
#[derive(Default)]
struct Found<'v> {
    /// Verbs by group, resource and name.
    verbs: BTreeMap<(&'v str, &'v str, Option<&'v str>), Vec<&'v str>>,
    urls: Vec<PolicyRule>,
    more: usize,
    looked_at: usize,
}

impl<'v> Found<'v> {
    fn len(&self) -> usize {
        self.verbs.len() + self.urls.len()
    }

    /// All combinations of these, of which as many are written down as there is room for.
    fn add(&mut self, [groups, resources, names]: [&[(usize, &'v str)]; 3], lacking: &[(usize, &'v str)]) {
        let names: Vec<_> =
            if names.is_empty() { vec![None] } else { names.iter().map(|(_, name)| Some(*name)).collect() };
        let combinations = groups.len().saturating_mul(resources.len()).saturating_mul(names.len());
        let all = groups.iter().flat_map(|(_, group)| resources.iter().map(move |(_, resource)| (*group, *resource)));
        let all = all.flat_map(|(group, resource)| names.iter().map(move |name| (group, resource, *name)));
        let mut written = 0;
        for place in all {
            if self.len() >= LISTED && !self.verbs.contains_key(&place) {
                break;
            }
            written += 1;
            self.verbs.entry(place).or_default().extend(lacking.iter().map(|(_, verb)| *verb));
        }
        self.more = self.more.saturating_add(combinations - written);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rule::fixtures::{on, strings, urls};
    use super::*;

    #[test]
    fn covering_follows_wildcards_and_names() {
        let cases = [
            (on(&["*"], &["*"], &["*"], &[]), on(&["get"], &[""], &["pods"], &[]), true),
            (on(&["get"], &[""], &["pods"], &[]), on(&["*"], &[""], &["pods"], &[]), false),
            (on(&["get"], &[""], &["*/scale"], &[]), on(&["get"], &[""], &["pods/scale"], &[]), true),
            (on(&["get"], &[""], &["*/scale"], &[]), on(&["get"], &[""], &["pods"], &[]), false),
            (on(&["get"], &[""], &["pods"], &["a"]), on(&["get"], &[""], &["pods"], &[]), false),
            (on(&["get"], &[""], &["pods"], &[]), on(&["get"], &[""], &["pods"], &["a"]), true),
            (on(&["get"], &[""], &["pods"], &["a", "b"]), on(&["get"], &[""], &["pods"], &["b"]), true),
            (urls(&["get"], &["/api*"]), urls(&["get"], &["/apis/*"]), true),
            (urls(&["get"], &["/api"]), urls(&["get"], &["/api*"]), false),
            (on(&["*"], &["*"], &["*"], &[]), urls(&["get"], &["/x"]), false),
        ];
        for (owner, wanted, want) in cases {
            assert_eq!(
                missing(std::slice::from_ref(&owner), std::slice::from_ref(&wanted)).is_empty(),
                want,
                "{owner:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn a_rule_of_a_million_combinations_is_judged_by_its_values() {
        let many = |prefix: &str| (0..100).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let wide = PolicyRule {
            verbs: many("v"),
            api_groups: many("g"),
            resources: many("r"),
            resource_names: many("n"),
            ..PolicyRule::default()
        };
        let owned = [on(&["v1", "get"], &["*"], &["r2", "pods"], &[]), on(&["*"], &["g3"], &["*"], &["n4"])];
        let found = missing(&owned, std::slice::from_ref(&wide));
        assert_eq!(found.listed.len(), LISTED);
        assert_eq!(found.more, 100 * 100 * 100 - 100 - LISTED, "all but what the second rule gives");
        assert!(missing(std::slice::from_ref(&wide), std::slice::from_ref(&wide)).is_empty());
        // As many different rights as values: refused without a look at each.
        let each: Vec<_> = (0..100)
            .map(|number| on(&[&format!("v{number}")], &[&format!("g{number}")], &[&format!("r{number}")], &[]))
            .collect();
        assert!(!missing(&each, &[wide]).is_empty());
    }

    #[test]
    fn long_lists_of_verbs_and_paths_are_not_multiplied() {
        let many = |prefix: &str| (0..20_000).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let paths = PolicyRule { verbs: many("v"), non_resource_urls: many("/"), ..PolicyRule::default() };
        let found = missing(&[], &[paths]);
        assert_eq!((found.listed.len(), found.more), (LISTED, 20_000 * 20_000 - LISTED));
    }

    /// One combination against one rule, by the book.
    fn covers(rule: &PolicyRule, [verb, group, resource]: [&str; 3], name: Option<&str>) -> bool {
        let has = |owned: &[String], wanted: &str| owned.iter().any(|owned| owned == ALL || owned == wanted);
        let of_any = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        has(&rule.verbs, verb)
            && has(&rule.api_groups, group)
            && (has(&rule.resources, resource) || of_any.is_some_and(|of_any| rule.resources.contains(&of_any)))
            && (rule.resource_names.is_empty()
                || name.is_some_and(|name| rule.resource_names.iter().any(|n| n == name)))
    }

    /// What is missing, combination by combination.
    fn by_the_book(owned: &[PolicyRule], wanted: &PolicyRule) -> Vec<String> {
        let mut listed = Vec::new();
        let names: Vec<_> = wanted.resource_names.iter().map(|name| Some(name.as_str())).collect();
        let names = if names.is_empty() { vec![None] } else { names };
        for group in &wanted.api_groups {
            for resource in &wanted.resources {
                for name in &names {
                    let is_missing =
                        |verb: &&String| !owned.iter().any(|rule| covers(rule, [verb, group, resource], *name));
                    let verbs: Vec<_> = wanted.verbs.iter().filter(is_missing).map(String::as_str).collect();
                    if !verbs.is_empty() {
                        let names: Vec<_> = name.iter().copied().collect();
                        listed.push(on(&verbs, &[group], &[resource], &names).describe());
                    }
                }
            }
        }
        listed.sort_unstable();
        listed
    }

    fn some(values: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
        let some = proptest::sample::subsequence(values, least..=values.len());
        some.prop_map(|some| strings(&some))
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        let parts = (
            some(&["get", "list", "delete", "*"], 1),
            some(&["", "apps", "*"], 1),
            some(&["pods", "pods/log", "*/log", "nodes", "*"], 1),
            some(&["a", "b", "*"], 0),
        );
        parts.prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            ..PolicyRule::default()
        })
    }

    proptest! {
        #[test]
        fn it_is_as_if_each_combination_were_looked_at(owned in proptest::collection::vec(rule(), 0..4), wanted in rule()) {
            let found = missing(&owned, std::slice::from_ref(&wanted));
            prop_assert_eq!(found.more, 0);
            prop_assert_eq!(found.listed, by_the_book(&owned, &wanted));
        }
    }
}
