//! `virtctl apply`: server-side apply of the objects in files.

use anyhow::{Context, bail};
use http::Method;
use serde_json::Value;

use super::discovery::Discovery;
use super::full_name;
use super::manifests::{Manifest, Sources};
use crate::cluster::Cluster;
use crate::output::{Format, print};
use crate::session::{Refused, Session};

/// Whoever applies with this program owns what it says.
const MANAGER: &str = "virtctl";

/// Arguments of `apply`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// Take over fields that others own.
    #[arg(long)]
    force_conflicts: bool,
    /// Name of the owner of what is applied.
    #[arg(long, value_name = "NAME", default_value = MANAGER)]
    field_manager: String,
    /// Check on the server; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the resulting objects.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// `virtctl apply`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let manifests = args.sources.read()?;
    let session = cluster.session().await?;
    let mut known = Discovery::read(&session).await?;
    let mut failed = 0;
    for manifest in &manifests {
        // What defines a kind may stand before objects of that kind.
        if known.of(text(&manifest.object, "apiVersion"), text(&manifest.object, "kind")).is_err() {
            known = Discovery::read(&session).await?;
        }
        let applied = apply(&session, &known, cluster.given_namespace(), args, manifest).await;
        if let Err(error) = applied.with_context(|| manifest.place.clone()) {
            if manifests.len() == 1 {
                return Err(error);
            }
            eprintln!("{}", crate::render(&error));
            failed += 1;
        }
    }
    if failed > 0 {
        bail!("{failed} of {} objects were not applied; the others are in place", manifests.len());
    }
    Ok(())
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

async fn apply(
    session: &Session,
    known: &Discovery,
    given: Option<&str>,
    args: &Args,
    manifest: &Manifest,
) -> anyhow::Result<()> {
    let object = &manifest.object;
    let resource = known.of(text(object, "apiVersion"), text(object, "kind"))?;
    let Some(name) = object["metadata"]["name"].as_str().filter(|name| !name.is_empty()) else {
        bail!("{} has no metadata.name: only named objects can be applied", text(object, "kind"));
    };
    let own = object["metadata"]["namespace"].as_str();
    if let (Some(own), Some(given)) = (own, given.filter(|_| resource.namespaced))
        && own != given
    {
        bail!("the object names namespace {own}, and --namespace names {given}: leave one out");
    }
    let namespace = own.unwrap_or(&session.namespace);
    let path = format!("{}/{name}", resource.path(Some(namespace)));
    let before = session.find(&path).await?.map(|before| before["metadata"]["resourceVersion"].clone());
    let dry_run = if args.dry_run { "&dryRun=All" } else { "" };
    let force = if args.force_conflicts { "&force=true" } else { "" };
    let query = format!("?fieldManager={}{force}{dry_run}", super::encoded(&args.field_manager));
    let patch = Some(("application/apply-patch+yaml", object));
    let after = session.ask(Method::PATCH, &format!("{path}{query}"), patch, "application/json").await;
    let after = match after {
        Err(Refused::Status(status)) if status["code"] == 409 && status["reason"] == "Conflict" => {
            return Err(Refused::Status(status)).context(
                "others own fields that differ here: take these fields out, or take them over with --force-conflicts",
            );
        }
        other => other?,
    };
    if let Some(format) = args.output {
        return print(&format.text(&after)?);
    }
    let done = match before {
        None => "created",
        Some(before) if before == after["metadata"]["resourceVersion"] => "unchanged",
        Some(_) => "configured",
    };
    let dry = if args.dry_run { " (server dry run)" } else { "" };
    print(&format!("{} {done}{dry}\n", full_name(&resource, name)))
}
