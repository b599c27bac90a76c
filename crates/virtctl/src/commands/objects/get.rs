//! `virtctl get`.

use anyhow::bail;
use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};

use super::discovery::{Discovery, Resource};
use super::jsonpath::Template;
use super::table::{Extra, Printer};
use super::{Selection, encoded, full_name, items};
use crate::cluster::Cluster;
use crate::output::{Format, print};
use crate::session::{Refused, Session};

/// Tables with the metadata of each row, or the objects where a server makes no tables.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Arguments of `get`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// What: `vm`, `vm NAME…`, `vm,vmi`, `vm/NAME pod/NAME`.
    #[arg(value_name = "KIND [NAME…]", required = true)]
    words: Vec<String>,
    /// Of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those with these labels, such as `app=web,tier!=test`.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only those with these fields, such as `metadata.name=web`.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// Go on with what changes.
    #[arg(short, long)]
    watch: bool,
    /// json, yaml, wide, name, or jsonpath=TEMPLATE.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<String>,
    /// With the labels in a column.
    #[arg(long)]
    show_labels: bool,
    /// Without the line of titles.
    #[arg(long)]
    no_headers: bool,
    /// Objects that are missing are no error.
    #[arg(long)]
    ignore_not_found: bool,
}

/// How objects are printed.
enum Shape {
    Table(Extra),
    Whole(Format),
    Names,
    Path(Template),
}

impl Args {
    fn shape(&self) -> anyhow::Result<Shape> {
        let extra = Extra {
            wide: self.output.as_deref() == Some("wide"),
            namespace: self.all_namespaces,
            labels: self.show_labels,
            no_headers: self.no_headers,
        };
        Ok(match self.output.as_deref() {
            None | Some("wide") => Shape::Table(extra),
            Some("json") => Shape::Whole(Format::Json),
            Some("yaml") => Shape::Whole(Format::Yaml),
            Some("name") => Shape::Names,
            Some(other) => match other.strip_prefix("jsonpath=") {
                Some(template) => Shape::Path(Template::parse(template)?),
                None => bail!("there is no output format \"{other}\": use json, yaml, wide, name or jsonpath=TEMPLATE"),
            },
        })
    }

    fn query(&self) -> String {
        let selector =
            |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={}", encoded(value)));
        let parts = [selector("labelSelector", &self.selector), selector("fieldSelector", &self.field_selector)];
        let query = parts.into_iter().flatten().collect::<Vec<_>>().join("&");
        if query.is_empty() { query } else { format!("?{query}") }
    }
}

/// `virtctl get`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let shape = args.shape()?;
    let session = cluster.session().await?;
    let selection = Selection::parse(&args.words, &Discovery::read(&session).await?)?;
    let getter = Getter { session, args, several: selection.parts.len() > 1 };
    match shape {
        Shape::Table(extra) => getter.tables(&selection, extra).await,
        Shape::Whole(format) => {
            let objects = getter.objects(&selection).await?;
            let single = selection.parts.len() == 1 && selection.parts[0].1.len() == 1;
            match objects.first().filter(|_| single) {
                Some(object) => print(&format.text(object)?),
                None => {
                    print(&format.text(&json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects}))?)
                }
            }
        }
        Shape::Names => {
            for (resource, names) in &selection.parts {
                for object in getter.of(resource, names).await? {
                    print(&format!(
                        "{}\n",
                        full_name(resource, object["metadata"]["name"].as_str().unwrap_or_default())
                    ))?;
                }
            }
            Ok(())
        }
        Shape::Path(template) => {
            let objects = getter.objects(&selection).await?;
            let single = selection.parts.len() == 1 && selection.parts[0].1.len() == 1;
            let list = json!({"kind": "List", "items": objects});
            let object = objects.first().filter(|_| single).unwrap_or(&list);
            print(&template.render(object))
        }
    }
}

struct Getter<'a> {
    session: Session,
    args: &'a Args,
    several: bool,
}

impl Getter<'_> {
    fn path(&self, resource: &Resource) -> String {
        let namespace = (!self.args.all_namespaces).then_some(self.session.namespace.as_str());
        resource.path(namespace)
    }

    async fn objects(&self, selection: &Selection) -> anyhow::Result<Vec<Value>> {
        let mut objects = Vec::new();
        for (resource, names) in &selection.parts {
            objects.extend(self.of(resource, names).await?);
        }
        Ok(objects)
    }

    /// The objects of a kind.
    async fn of(&self, resource: &Resource, names: &[String]) -> anyhow::Result<Vec<Value>> {
        let path = self.path(resource);
        if names.is_empty() {
            let list = self.session.get(&format!("{path}{}", self.args.query())).await?;
            return Ok(items(&list, resource));
        }
        let mut objects = Vec::new();
        for name in names {
            objects.extend(self.tolerate(self.session.get(&format!("{path}/{name}")).await)?);
        }
        Ok(objects)
    }

    fn tolerate(&self, answer: Result<Value, Refused>) -> Result<Option<Value>, Refused> {
        match answer {
            Err(refused) if refused.is_not_found() && self.args.ignore_not_found => Ok(None),
            other => other.map(Some),
        }
    }

    async fn tables(&self, selection: &Selection, extra: Extra) -> anyhow::Result<()> {
        let mut rows = 0;
        for (resource, names) in &selection.parts {
            let extra = Extra { namespace: extra.namespace && resource.namespaced, ..extra };
            let prefix = if self.several { format!("{}/", resource.typed()) } else { String::new() };
            let mut printer = Printer::new(extra, prefix);
            let (shown, version) = self.table(resource, names, &mut printer, rows > 0).await?;
            rows += shown;
            if self.args.watch {
                if self.several {
                    bail!("only one kind can be watched: name one, such as vm");
                }
                return self.follow(resource, names, version, &mut printer).await;
            }
        }
        if rows == 0 {
            let namespaced = selection.parts.iter().any(|(resource, _)| resource.namespaced);
            match namespaced && !self.args.all_namespaces {
                true => eprintln!("No resources found in {} namespace.", self.session.namespace),
                false => eprintln!("No resources found"),
            }
        }
        Ok(())
    }

    /// Prints the present objects; how many they are and the version of the list.
    async fn table(
        &self,
        resource: &Resource,
        names: &[String],
        printer: &mut Printer,
        after_others: bool,
    ) -> anyhow::Result<(usize, String)> {
        let path = self.path(resource);
        let paths = match names {
            [] => vec![format!("{path}{}", self.args.query())],
            names => names.iter().map(|name| format!("{path}/{name}")).collect(),
        };
        let (mut rows, mut version) = (0, String::new());
        for path in paths {
            let Some(table) = self.tolerate(self.session.ask(Method::GET, &path, None, TABLE).await)? else { continue };
            version = table["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let count = table["rows"].as_array().map_or(0, Vec::len);
            if count > 0 {
                let gap = if after_others && rows == 0 { "\n" } else { "" };
                print(&format!("{gap}{}", printer.print(&table)))?;
            }
            rows += count;
        }
        Ok((rows, version))
    }

    /// Prints changes until the user leaves.
    async fn follow(
        &self,
        resource: &Resource,
        names: &[String],
        version: String,
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        let path = self.path(resource);
        let mut query = self.args.query();
        if let [name] = names {
            query = format!("?fieldSelector=metadata.name%3D{name}");
        }
        let joint = if query.is_empty() { "?" } else { "&" };
        let mut version = version;
        loop {
            let path = format!("{path}{query}{joint}watch=true&resourceVersion={version}");
            let mut events = std::pin::pin!(self.session.watch(&path, TABLE).await?);
            while let Some(event) = events.next().await {
                let event = event?;
                if event["type"] == "BOOKMARK" {
                    continue;
                }
                let table = &event["object"];
                if let Some(next) = table["rows"][0]["object"]["metadata"]["resourceVersion"].as_str() {
                    next.clone_into(&mut version);
                }
                print(&printer.print(table))?;
            }
        }
    }
}
