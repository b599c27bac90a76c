//! `virtctl delete`.

use std::time::Duration;

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::discovery::{Discovery, Resource};
use super::manifests::Sources;
use super::{Selection, encoded, items};
use crate::cluster::Cluster;
use crate::output::print;
use crate::progress::Progress;
use crate::session::Session;
use crate::until::{until, within};

/// For ever, in the words of a timeout.
const LONG: Duration = Duration::from_secs(7 * 86400);

/// Arguments of `delete`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// What: `vm NAME…`, `vm/NAME`, `vm --all`.
    #[arg(value_name = "KIND [NAME…]")]
    words: Vec<String>,
    #[command(flatten)]
    sources: Sources,
    /// Those with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    all: bool,
    /// Wait until the objects are gone.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL", action = clap::ArgAction::Set)]
    wait: bool,
    /// How long to wait; 0 for ever.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::time::duration)]
    timeout: Duration,
    /// Seconds that an object has to end by itself.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: Option<i64>,
    /// As --grace-period=1.
    #[arg(long)]
    now: bool,
    /// As --grace-period=0.
    #[arg(long)]
    force: bool,
    /// What happens to what the objects own: background, foreground or orphan.
    #[arg(long, value_name = "HOW", default_value = "background", value_parser = ["background", "foreground", "orphan"])]
    cascade: String,
    /// Objects that are missing are no error.
    #[arg(long)]
    ignore_not_found: bool,
    /// Check on the server; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// An object to delete.
struct Doomed {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Args {
    fn options(&self) -> Value {
        let cascade = match self.cascade.as_str() {
            "foreground" => "Foreground",
            "orphan" => "Orphan",
            _ => "Background",
        };
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": cascade});
        let grace = self.grace_period.filter(|grace| *grace >= 0);
        if let Some(grace) = grace.or_else(|| self.force.then_some(0)).or_else(|| self.now.then_some(1)) {
            options["gracePeriodSeconds"] = json!(grace);
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }

    async fn doomed(&self, session: &Session) -> anyhow::Result<Vec<Doomed>> {
        let known = Discovery::read(session).await?;
        let mut doomed = Vec::new();
        if !self.sources.is_empty() {
            for manifest in self.sources.read()? {
                let object = &manifest.object;
                let field = |pointer| object.pointer(pointer).and_then(Value::as_str);
                let resource = known.of(field("/apiVersion").unwrap_or_default(), field("/kind").unwrap_or_default());
                let name =
                    field("/metadata/name").with_context(|| format!("{}: the object has no name", manifest.place))?;
                let namespace = field("/metadata/namespace").unwrap_or(&session.namespace).to_owned();
                doomed.push(Doomed {
                    resource: resource.context(manifest.place.clone())?,
                    namespace,
                    name: name.to_owned(),
                });
            }
            return Ok(doomed);
        }
        for (resource, names) in Selection::parse(&self.words, &known)?.parts {
            let names = match (names.is_empty(), self.all || self.selector.is_some()) {
                (true, false) => bail!("name what to delete, or give --all or a selector (-l)"),
                (true, true) => self.selected(session, &resource).await?,
                (false, _) => names,
            };
            let namespace = session.namespace.clone();
            doomed.extend(names.into_iter().map(|name| Doomed {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name,
            }));
        }
        Ok(doomed)
    }

    async fn selected(&self, session: &Session, resource: &Resource) -> anyhow::Result<Vec<String>> {
        let selector = self.selector.as_ref().map(|selector| format!("?labelSelector={}", encoded(selector)));
        let path = format!("{}{}", resource.path(Some(&session.namespace)), selector.unwrap_or_default());
        let list = session.get(&path).await?;
        let name = |item: Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(items(&list, resource).into_iter().map(name).collect())
    }
}

/// `virtctl delete`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let session = cluster.session().await?;
    let doomed = args.doomed(&session).await?;
    if doomed.is_empty() {
        return print("No resources found\n");
    }
    let mut waiting = Vec::new();
    for one in doomed {
        let path = format!("{}/{}", one.resource.path(Some(&one.namespace)), one.name);
        let told = match session.send(Method::DELETE, &path, &args.options()).await {
            Err(refused) if refused.is_not_found() && args.ignore_not_found => continue,
            told => told?,
        };
        let dry = if args.dry_run { " (server dry run)" } else { "" };
        print(&format!("{} \"{}\" deleted{dry}\n", one.resource.typed(), one.name))?;
        // An answer is the object as it goes, or a status that names it.
        let uid =
            [&told["metadata"]["uid"], &told["details"]["uid"]].into_iter().find_map(Value::as_str).map(str::to_owned);
        waiting.push((one, uid));
    }
    if args.wait && !args.dry_run {
        let patience = if args.timeout.is_zero() { LONG } else { args.timeout };
        for (one, uid) in waiting {
            gone(&session, &one, uid.as_deref(), patience).await?;
        }
    }
    Ok(())
}

/// Waits until an object is gone, or another has its name.
async fn gone(session: &Session, one: &Doomed, uid: Option<&str>, patience: Duration) -> anyhow::Result<()> {
    let Doomed { resource, namespace, name } = one;
    let progress = Progress::new(format!("{}/{name}: waiting until it is gone", resource.typed()));
    let collection = resource.path(Some(namespace));
    let watched = until(session, &collection, name, |object| {
        let Some(object) = object else { return Ok(Some(())) };
        let is_other = uid.is_some_and(|uid| object["metadata"]["uid"] != uid);
        let held = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let held = held.collect::<Vec<_>>().join(", ");
        if !held.is_empty() {
            progress.say(format!("{}/{name}: waiting for {held}", resource.typed()));
        }
        Ok(is_other.then_some(()))
    });
    let what = || format!("the deletion of {}/{name}", resource.typed());
    progress.during(within(patience, what, watched)).await
}
