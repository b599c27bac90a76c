//! Where a guest may run: Kubernetes' own rules for affinity, topology spread and tolerations, as the pod's API server has them.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::Guest;
use super::Reason::{Duplicate, Invalid, NotSupported, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use crate::kubevirt::Configuration;
use crate::vmi::VirtualMachineInstanceSpec;

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;
type SpreadRule = Row<fn(&SpreadOf<'_>) -> Problem>;
type TolerationRule = Row<fn(&&Toleration) -> Problem>;

const GUEST: &[GuestRule] = &[
    (
        "node-affinity-has-terms",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        Required,
        |it| {
            let node = it.spec.affinity.as_ref()?.node_affinity.as_ref()?;
            let required = node.required_during_scheduling_ignored_during_execution.as_ref()?;
            if_so(required.node_selector_terms.is_empty(), "is empty: at least one term is needed")
        },
    ),
    ("node-affinity-expressions-are-sound", "affinity.nodeAffinity", Invalid, |it| it.node_terms().find_map(node_term)),
    ("affinity-weights-are-1-to-100", "affinity", Invalid, |it| {
        let weight = it.weights().find(|weight| !(1..=100).contains(weight))?;
        Some(format!("has the weight {weight}: use 1 to 100"))
    }),
    ("pod-affinity-has-a-topology-key", "affinity", Required, |it| {
        if_so(it.pod_terms().any(|term| term.topology_key.is_empty()), "has a term for pods without topologyKey")
    }),
    ("pod-affinity-selectors-are-sound", "affinity", Invalid, |it| {
        let selectors = it.pod_terms().flat_map(|term| [&term.label_selector, &term.namespace_selector]);
        selectors.flatten().find_map(selector)
    }),
];

/// What is wrong with an affinity, in one sentence.
pub(super) fn affinity_problem(affinity: &Affinity) -> Problem {
    let spec = VirtualMachineInstanceSpec { affinity: Some(affinity.clone()), ..VirtualMachineInstanceSpec::default() };
    let guest = Guest { metadata: None, spec: &spec, cluster: &Configuration::default() };
    GUEST.iter().find_map(|(.., judge)| judge(&guest))
}

impl Guest<'_> {
    fn node_terms(&self) -> impl Iterator<Item = &NodeSelectorTerm> {
        let node = self.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = node.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred = preferred.into_iter().flatten().map(|term| &term.preference);
        required.into_iter().flat_map(|required| &required.node_selector_terms).chain(preferred)
    }

    fn weights(&self) -> impl Iterator<Item = i32> {
        let affinity = self.spec.affinity.as_ref();
        let node = affinity
            .and_then(|it| it.node_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref());
        let with = affinity
            .and_then(|it| it.pod_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref());
        let without = affinity.and_then(|it| {
            it.pod_anti_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref()
        });
        let pods = with.into_iter().chain(without).flatten().map(|term| term.weight);
        node.into_iter().flatten().map(|term| term.weight).chain(pods)
    }

    fn pod_terms(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        let affinity = self.spec.affinity.as_ref();
        let with = affinity.and_then(|it| it.pod_affinity.as_ref());
        let without = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
        let required = [
            with.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref()),
            without.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref()),
        ];
        let preferred = [
            with.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref()),
            without.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ];
        let preferred = preferred.into_iter().flatten().flatten().map(|term| &term.pod_affinity_term);
        required.into_iter().flatten().flatten().chain(preferred)
    }
}

fn node_term(term: &NodeSelectorTerm) -> Problem {
    let fields = term.match_fields.iter().flatten();
    let wrong = fields.clone().find(|field| field.key != "metadata.name");
    let expressions = term.match_expressions.iter().flatten();
    wrong
        .map(|field| format!("matches the field '{}': nodes can be matched by metadata.name", field.key))
        .or_else(|| expressions.chain(fields).find_map(node_expression))
}

fn node_expression(expression: &NodeSelectorRequirement) -> Problem {
    let NodeSelectorRequirement { key, operator, values } = expression;
    operator_problem(key, operator, values.as_ref().map_or(0, Vec::len), true)
}

fn operator_problem(key: &str, operator: &str, values: usize, numbers: bool) -> Problem {
    match operator {
        "In" | "NotIn" => when(values == 0, || format!("has no values for '{key}' {operator}")),
        "Exists" | "DoesNotExist" => {
            when(values > 0, || format!("has values for '{key}' {operator}, which takes none"))
        }
        "Gt" | "Lt" if numbers => {
            when(values != 1, || format!("has {values} values for '{key}' {operator}, which takes one"))
        }
        _ => Some(format!("has the operator '{operator}' for '{key}': use In, NotIn, Exists or DoesNotExist")),
    }
}

fn selector(selector: &LabelSelector) -> Problem {
    let expressions = selector.match_expressions.iter().flatten();
    let mut problems = expressions.map(|LabelSelectorRequirement { key, operator, values }| {
        operator_problem(key, operator, values.as_ref().map_or(0, Vec::len), false)
    });
    problems.find_map(|problem| problem)
}

struct SpreadOf<'a> {
    constraint: &'a TopologySpreadConstraint,
    before: &'a [TopologySpreadConstraint],
}

const SPREAD: &[SpreadRule] = &[
    ("spread-skew-is-positive", "maxSkew", Invalid, |it| {
        let skew = it.constraint.max_skew;
        when(skew < 1, || format!("is {skew}: use at least 1"))
    }),
    ("spread-has-a-topology-key", "topologyKey", Required, |it| {
        if_so(it.constraint.topology_key.is_empty(), "is empty: name a label of nodes")
    }),
    ("spread-reaction-is-known", "whenUnsatisfiable", NotSupported, |it| {
        let reaction = it.constraint.when_unsatisfiable.as_str();
        when(!["DoNotSchedule", "ScheduleAnyway"].contains(&reaction), || {
            format!("is '{reaction}': use DoNotSchedule or ScheduleAnyway")
        })
    }),
    ("spread-constraints-differ", "", Duplicate, |it| {
        let same = |other: &TopologySpreadConstraint| {
            other.topology_key == it.constraint.topology_key
                && other.when_unsatisfiable == it.constraint.when_unsatisfiable
        };
        if_so(it.before.iter().any(same), "has topologyKey and whenUnsatisfiable of one before it")
    }),
];

const TOLERATION: &[TolerationRule] = &[
    ("toleration-operator-is-known", "operator", NotSupported, |it| {
        let operator = it.operator.as_deref()?;
        when(!["", "Equal", "Exists"].contains(&operator), || format!("is '{operator}': use Equal or Exists"))
    }),
    ("toleration-by-existence-has-no-value", "value", Invalid, |it| {
        let exists = it.operator.as_deref() == Some("Exists");
        if_so(
            exists && it.value.as_deref().is_some_and(|value| !value.is_empty()),
            "must be empty when operator is Exists",
        )
    }),
    ("toleration-of-everything-needs-exists", "operator", Invalid, |it| {
        let all = it.key.as_deref().is_none_or(str::is_empty);
        if_so(all && it.operator.as_deref() != Some("Exists"), "must be Exists when key is empty")
    }),
    ("toleration-effect-is-known", "effect", NotSupported, |it| {
        let effect = it.effect.as_deref()?;
        when(!["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect), || {
            format!("is '{effect}': use NoSchedule, PreferNoSchedule or NoExecute")
        })
    }),
];

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    if guest.spec.affinity.is_some() {
        findings.apply(GUEST, guest, path);
    }
    let constraints = &guest.spec.topology_spread_constraints;
    for (index, constraint) in constraints.iter().enumerate() {
        let list = path.field("topologySpreadConstraints");
        findings.apply(SPREAD, &SpreadOf { constraint, before: &constraints[..index] }, &list.index(index));
    }
    for (index, toleration) in guest.spec.tolerations.iter().enumerate() {
        findings.apply(TOLERATION, &toleration, &path.field("tolerations").index(index));
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST).chain(names(SPREAD)).chain(names(TOLERATION))
}
