//! `virtctl wait`.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::discovery::{Discovery, Resource};
use super::jsonpath::Template;
use super::{Selection, encoded, full_name, items};
use crate::cluster::Cluster;
use crate::output::print;
use crate::progress::Progress;
use crate::session::Session;
use crate::until::{TimedOut, until};

/// Arguments of `wait`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// What: `vm NAME…`, `vm/NAME`, `vm -l app=web`.
    #[arg(value_name = "KIND [NAME…]", required = true)]
    words: Vec<String>,
    /// For what: condition=NAME[=VALUE], jsonpath=PATH[=VALUE], delete, or create.
    #[arg(long = "for", value_name = "WHAT", value_parser = Goal::parse)]
    goal: Goal,
    /// How long to wait.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::time::duration)]
    timeout: Duration,
    /// Those with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    all: bool,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Goal {
    Condition { name: String, value: String },
    Path { template: Template, text: String, value: Option<String> },
    Gone,
    There,
}

impl Goal {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is nothing to wait for: use condition=NAME, jsonpath='{{.path}}'=VALUE, delete or create"
            )
        };
        match text.split_once('=') {
            None if text.eq_ignore_ascii_case("delete") => Ok(Self::Gone),
            None if text.eq_ignore_ascii_case("create") => Ok(Self::There),
            Some(("condition", rest)) if !rest.is_empty() => {
                let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
                Ok(Self::Condition { name: name.to_owned(), value: value.to_owned() })
            }
            Some(("jsonpath", rest)) => {
                // The path itself may contain an equals sign, in a filter.
                let end = rest.rfind('}').map_or_else(|| rest.find('=').unwrap_or(rest.len()), |brace| brace + 1);
                let value = rest[end..].strip_prefix('=').map(|value| value.trim_matches(['"', '\'']).to_owned());
                let template = Template::parse(&rest[..end]).map_err(|error| error.to_string())?;
                Ok(Self::Path { template, text: rest[..end].to_owned(), value })
            }
            _ => Err(wrong()),
        }
    }

    /// Whether an object, or its absence, is what is waited for.
    fn is_met(&self, object: Option<&Value>) -> bool {
        match (self, object) {
            (Self::Gone, object) => object.is_none(),
            (Self::There, object) => object.is_some(),
            (_, None) => false,
            (Self::Condition { name, value }, Some(object)) => {
                status(object, name).is_some_and(|status| status.eq_ignore_ascii_case(value))
            }
            (Self::Path { template, value: Some(value), .. }, Some(object)) => template.render(object) == *value,
            (Self::Path { template, value: None, .. }, Some(object)) => template.finds(object),
        }
    }

    /// How near an object is, for people.
    fn progress(&self, object: Option<&Value>) -> String {
        match (self, object) {
            (_, None) => "it is not there".to_owned(),
            (Self::Condition { name, .. }, Some(object)) => {
                let status = status(object, name).unwrap_or("not known");
                let phase =
                    ["/status/printableStatus", "/status/phase"].iter().find_map(|at| object.pointer(at)?.as_str());
                let phase = phase.map(|phase| format!(", it is {phase}")).unwrap_or_default();
                format!("{name} is {status}{phase}")
            }
            (Self::Path { template, text, .. }, Some(object)) => format!("{text} is \"{}\"", template.render(object)),
            (Self::Gone, Some(_)) => "it is still there".to_owned(),
            (Self::There, Some(_)) => "it is there".to_owned(),
        }
    }
}

/// The status of a condition, whose name's case does not matter.
fn status<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let named = |condition: &&Value| condition["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case(name));
    conditions.iter().find(named)?["status"].as_str()
}

/// `virtctl wait`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let session = cluster.session().await?;
    let deadline = tokio::time::Instant::now() + args.timeout;
    let selection = Selection::parse(&args.words, &Discovery::read(&session).await?)?;
    let mut targets = Vec::new();
    for (resource, names) in selection.parts {
        let names = if names.is_empty() { selected(&session, args, &resource).await? } else { names };
        targets.extend(names.into_iter().map(|name| (resource.clone(), name)));
    }
    if targets.is_empty() && args.goal != Goal::Gone {
        bail!("no matching resources found: name objects, or give --all or a selector (-l)");
    }
    for (resource, name) in targets {
        wait(&session, args, &resource, &name, deadline).await?;
    }
    Ok(())
}

async fn selected(session: &Session, args: &Args, resource: &Resource) -> anyhow::Result<Vec<String>> {
    if !args.all && args.selector.is_none() {
        bail!("name objects, or give --all or a selector (-l)");
    }
    let selector = args.selector.as_ref().map(|selector| format!("?labelSelector={}", encoded(selector)));
    let list =
        session.get(&format!("{}{}", resource.path(Some(&session.namespace)), selector.unwrap_or_default())).await?;
    let name = |item: Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(items(&list, resource).into_iter().map(name).collect())
}

async fn wait(
    session: &Session,
    args: &Args,
    resource: &Resource,
    name: &str,
    deadline: tokio::time::Instant,
) -> anyhow::Result<()> {
    let collection = resource.path(Some(&session.namespace));
    if !matches!(args.goal, Goal::Gone | Goal::There) {
        // One that is not there now is a mistake in its name.
        session.get(&format!("{collection}/{name}")).await?;
    }
    let full = full_name(resource, name);
    let progress = Progress::new(format!("{full}: waiting"));
    let watched = until(session, &collection, name, |object| {
        progress.say(format!("{full}: {}", args.goal.progress(object)));
        if object.is_none() && !matches!(args.goal, Goal::Gone | Goal::There) {
            bail!("{full} was deleted");
        }
        Ok(args.goal.is_met(object).then_some(()))
    });
    let waited = progress.during(tokio::time::timeout_at(deadline, watched)).await;
    match waited {
        Ok(done) => done?,
        Err(_) => {
            let what = format!("the condition on {}/{name}", resource.plural);
            let hint = match resource.group.as_str() {
                "kubevirt.io" => format!("\"virtctl why {name}\" tells what it waits for"),
                _ => "a longer --timeout may help".to_owned(),
            };
            return Err(anyhow!(TimedOut { what })).with_context(|| hint);
        }
    }
    print(&format!("{full} condition met\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn goals_are_met() {
        let object = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        for (goal, met) in [
            ("condition=Ready", true),
            ("condition=ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Paused", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath='{.status.phase}'", true),
            ("jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True", true),
            ("jsonpath={.status.phase}=Failed", false),
            ("jsonpath={.status.node}", false),
            ("delete", false),
            ("create", true),
        ] {
            let goal = Goal::parse(&goal.replace('\'', "")).unwrap();
            assert_eq!(goal.is_met(Some(&object)), met, "{goal:?}");
        }
        assert!(Goal::Gone.is_met(None) && !Goal::There.is_met(None));
        for wrong in ["", "ready", "condition=", "conditions=Ready", "jsonpath={.a"] {
            assert!(Goal::parse(wrong).is_err(), "{wrong}");
        }
    }
}
