//! Runs one case: a fresh namespace, the steps, the blanked answer, and then everything is removed again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::blank::Blanker;
use crate::case::{Case, Identity, Step, Suite, Until};
use crate::client::{Incoming, Outgoing, Server};
use crate::{pointer, watching};

/// Response headers that are recorded wherever they occur.
const HEADERS: [&str; 5] = ["content-type", "warning", "retry-after", "location", "allow"];
const PATIENCE: Duration = Duration::from_secs(120);

/// The namespaces of cases that have ended. They are deleted when all cases have: a server that empties hundreds of namespaces has
/// no time for the cases that wait for it.
#[derive(Debug, Default)]
pub(crate) struct UsedNamespaces(Mutex<Vec<String>>);

impl UsedNamespaces {
    fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// Asks the server to delete them; it takes its time for that.
    pub(crate) async fn delete(self, server: &Server) {
        for name in self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            drop(server.ask(&simple(Method::DELETE, &format!("/api/v1/namespaces/{name}"), &Value::Null)).await);
        }
    }
}

/// Runs a case and returns its blanked answer.
pub(crate) async fn run(server: &Server, suite: &Suite, used: &UsedNamespaces, case: &Case) -> Result<Value> {
    let unique = word();
    let namespace = format!("api-{}", word());
    let variables =
        BTreeMap::from([("namespace".to_owned(), namespace.clone()), ("unique".to_owned(), unique.clone())]);
    let mut conversation = Conversation { server, variables, background: HashMap::new(), created: Vec::new() };
    used.add(&namespace);
    conversation.create_namespace(&namespace).await?;
    let outcome = conversation.all(suite, case).await;
    conversation.clean_up(&namespace).await;
    let steps = outcome?;
    let mut blanker = Blanker::new(&[(&namespace, "namespace"), (&unique, "unique"), (&server.address, "server")]);
    Ok(blanker.blank(&json!({"steps": steps})))
}

/// What is not recorded is not compared, so it must at least work.
fn must_succeed(step: &Step, answer: &Value) -> Result<()> {
    if answer["status"].as_u64().is_none_or(|status| status >= 300) {
        bail!("{} was answered {answer}", step.request.as_deref().unwrap_or_default());
    }
    Ok(())
}

/// A word that no other run has: names of cluster-scoped objects contain it.
fn word() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut random = std::hash::RandomState::new().build_hasher().finish();
    let letter = |_| {
        let letter = b"bcdfghjklmnpqrstvwxz"[(random % 20) as usize];
        random /= 20;
        char::from(letter)
    };
    (0..10).map(letter).collect()
}

struct Conversation<'a> {
    server: &'a Server,
    variables: BTreeMap<String, String>,
    background: HashMap<String, JoinHandle<Result<Value>>>,
    /// Paths of objects that were created, and whether they must be deleted by us.
    created: Vec<Created>,
}

struct Created {
    path: String,
    cluster_scoped: bool,
    finalizers: bool,
}

impl Conversation<'_> {
    async fn all(&mut self, suite: &Suite, case: &Case) -> Result<Vec<Value>> {
        for name in &case.setup {
            for step in suite.fixture(name)?.steps {
                let answer = self.step(&step).await.with_context(|| format!("fixture {name}"))?;
                must_succeed(&step, &answer).with_context(|| format!("fixture {name}"))?;
            }
        }
        let mut answers = Vec::new();
        for (index, step) in case.steps.iter().enumerate() {
            let answer = self.step(step).await.with_context(|| format!("step {index}"))?;
            if step.unrecorded || step.background.is_some() {
                must_succeed(step, &answer).with_context(|| format!("step {index}"))?;
                answers.push(json!({"request": step.request}));
            } else {
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    async fn step(&mut self, step: &Step) -> Result<Value> {
        if let Some(name) = &step.collect {
            let watch = self.background.remove(name).ok_or_else(|| anyhow!("no background watch is called {name}"))?;
            let mut answer = watch.await??;
            self.finish(step, &mut answer)?;
            return Ok(answer);
        }
        let outgoing = self.outgoing(step)?;
        let mut answer = match (&step.watch, &step.until) {
            (Some(_), _) => self.watch(step, &outgoing).await?,
            (None, Some(until)) => self.repeat(step, &outgoing, until).await?,
            (None, None) => describe(step, &self.server.ask(&outgoing).await?),
        };
        self.remember_created(&outgoing, &answer);
        self.finish(step, &mut answer)?;
        Ok(answer)
    }

    /// Saves variables, then leaves out what the step does not want recorded.
    fn finish(&mut self, step: &Step, answer: &mut Value) -> Result<()> {
        for (variable, place) in &step.save {
            let value = pointer::get(&answer["body"], place);
            let value = value.ok_or_else(|| anyhow!("nothing to save at {place} in {answer}"))?;
            self.variables.insert(variable.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        for place in &step.blank {
            if let Some(value) = pointer::get_mut(&mut answer["body"], &self.fill(place)) {
                *value = json!("<blanked>");
            }
        }
        if !step.only.is_empty() {
            let part = |place: &String| {
                (place.clone(), pointer::get(&answer["body"], &self.fill(place)).cloned().unwrap_or(json!("<absent>")))
            };
            let parts: Map<String, Value> = step.only.iter().map(part).collect();
            answer["body"] = Value::Object(parts);
        }
        if let (Some(request), Some(fields)) = (&step.request, answer.as_object_mut()) {
            fields.insert("request".to_owned(), json!(request));
        }
        Ok(())
    }

    async fn repeat(&self, step: &Step, outgoing: &Outgoing, until: &Until) -> Result<Value> {
        let deadline = Instant::now() + until.seconds.map_or(PATIENCE, Duration::from_secs);
        loop {
            let answer = describe(step, &self.server.ask(outgoing).await?);
            let met = until.status.is_none_or(|status| answer["status"] == status)
                && until.body.iter().all(|(place, wanted)| {
                    pointer::get(&answer["body"], &self.fill(place)).unwrap_or(&Value::Null) == &self.fill_value(wanted)
                })
                && until.present.iter().all(|place| pointer::get(&answer["body"], &self.fill(place)).is_some());
            if met || Instant::now() > deadline {
                return Ok(answer);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn watch(&mut self, step: &Step, outgoing: &Outgoing) -> Result<Value> {
        let response = self.server.open(outgoing).await?;
        let wanted = step.watch.clone().unwrap_or_default();
        let (status, headers) = (response.status(), recorded_headers(step, response.headers()));
        if status != StatusCode::OK {
            let (head, body) = response.into_parts();
            let body = http_body_util::BodyExt::collect(body).await?.to_bytes().to_vec();
            return Ok(describe(step, &Incoming { status, headers: head.headers, body }));
        }
        let reading = async move {
            let events = watching::read(response, &wanted).await?;
            Ok(json!({"status": status.as_u16(), "headers": headers, "body": events}))
        };
        if let Some(name) = &step.background {
            self.background.insert(name.clone(), tokio::spawn(reading));
            return Ok(json!({"status": status.as_u16()}));
        }
        reading.await
    }

    fn outgoing(&self, step: &Step) -> Result<Outgoing> {
        let request = self.fill(step.request.as_deref().ok_or_else(|| anyhow!("a step needs `request` or `collect`"))?);
        let (method, path) =
            request.split_once(' ').ok_or_else(|| anyhow!("a request is `METHOD path`, not {request}"))?;
        let body = self.body(step)?;
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("api-suite/1"));
        headers.insert(ACCEPT, self.fill(step.accept.as_deref().unwrap_or("application/json")).parse()?);
        let default_type = step.patch.map_or("application/json", crate::case::PatchType::content_type);
        match step.content_type.as_deref() {
            Some("") => {}
            Some(other) => drop(headers.insert(CONTENT_TYPE, other.parse()?)),
            None if !body.is_empty() => drop(headers.insert(CONTENT_TYPE, HeaderValue::from_static(default_type))),
            None => {}
        }
        for (name, value) in &step.headers {
            headers.insert(HeaderName::try_from(name.as_str())?, self.fill(value).parse()?);
        }
        let anonymous = self.identify(step.identity.as_ref(), &mut headers)?;
        Ok(Outgoing {
            method: Method::from_bytes(method.as_bytes())?,
            path: path.trim().to_owned(),
            headers,
            body,
            anonymous,
        })
    }

    /// Adds the headers that say who asks; true when the kubeconfig's own credentials must not be used.
    fn identify(&self, identity: Option<&Identity>, headers: &mut HeaderMap) -> Result<bool> {
        const USER: HeaderName = HeaderName::from_static("impersonate-user");
        const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
        match identity {
            None => return Ok(false),
            Some(Identity::Name(name)) if name == "anonymous" => return Ok(true),
            Some(Identity::Token { token }) => {
                headers.insert(AUTHORIZATION, format!("Bearer {}", self.fill(token)).parse()?);
                return Ok(true);
            }
            Some(Identity::Name(user)) => drop(headers.insert(USER, self.fill(user).parse()?)),
            Some(Identity::User { user, groups }) => {
                headers.insert(USER, self.fill(user).parse()?);
                for group in groups {
                    headers.append(GROUP, self.fill(group).parse()?);
                }
            }
        }
        Ok(false)
    }

    fn body(&self, step: &Step) -> Result<Vec<u8>> {
        if let Some(hex) = &step.body_hex {
            let digits: Vec<char> = hex.chars().filter(|letter| !letter.is_whitespace()).collect();
            let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
            return digits.chunks(2).map(byte).collect::<Result<_, _>>().context("bodyHex");
        }
        let text = match &step.body {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => self.fill(text),
            Some(value) => serde_json::to_string(&self.fill_value(value))?,
        };
        Ok(text.replace("${padding}", &"a".repeat(step.padding)).into_bytes())
    }

    /// Puts variables into a text.
    fn fill(&self, text: &str) -> String {
        let fill_one = |text: String, (name, value): (&String, &String)| text.replace(&format!("${{{name}}}"), value);
        if text.contains("${") { self.variables.iter().fold(text.to_owned(), fill_one) } else { text.to_owned() }
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(elements) => Value::Array(elements.iter().map(|element| self.fill_value(element)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(key, field)| (self.fill(key), self.fill_value(field))).collect())
            }
            other => other.clone(),
        }
    }

    /// Cluster-scoped objects are ours to delete; finalizers that a case has set would keep its namespace for ever.
    fn remember_created(&mut self, outgoing: &Outgoing, answer: &Value) {
        let metadata = &answer["body"]["metadata"];
        let Some(name) = metadata["name"].as_str() else { return };
        if answer["status"] != 201 || metadata["uid"].is_null() || outgoing.path.contains("dryRun") {
            return;
        }
        let path = outgoing.path.split('?').next().unwrap_or_default();
        let path = if outgoing.method == Method::POST { format!("{path}/{name}") } else { path.to_owned() };
        let cluster_scoped = metadata["namespace"].is_null();
        let finalizers = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one.as_str().is_some_and(|one| one.contains("example"))));
        self.created.push(Created { path, cluster_scoped, finalizers });
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let create = simple(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": name}}));
        let answer = self.server.ask(&create).await?;
        if answer.status != StatusCode::CREATED {
            bail!("namespace {name} was answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        // Every namespace gets these two a moment later; no case should have to care when.
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let get = simple(Method::GET, &format!("/api/v1/namespaces/{name}/{path}"), &Value::Null);
            let deadline = Instant::now() + PATIENCE;
            while self.server.ask(&get).await?.status != StatusCode::OK {
                if Instant::now() > deadline {
                    bail!("{path} did not appear in a new namespace");
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// What cannot be removed is not the case's failure; a leftover carries a name that nothing else uses.
    async fn clean_up(&mut self, namespace: &str) {
        for watch in self.background.values() {
            watch.abort();
        }
        for created in self.created.iter().rev() {
            if created.finalizers {
                let mut patch = simple(Method::PATCH, &created.path, &json!({"metadata": {"finalizers": null}}));
                patch.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
                drop(self.server.ask(&patch).await);
            }
            if created.cluster_scoped {
                drop(self.server.ask(&simple(Method::DELETE, &created.path, &Value::Null)).await);
            }
        }
        // No kubelet will confirm the end of a pod that has a node, so pods go at once.
        let pods = format!("/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0");
        drop(self.server.ask(&simple(Method::DELETE, &pods, &Value::Null)).await);
    }
}

fn simple(method: Method, path: &str, body: &Value) -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    if !body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Outgoing { method, path: path.to_owned(), headers, body, anonymous: false }
}

/// An answer as it is recorded.
fn describe(step: &Step, incoming: &Incoming) -> Value {
    let body = match (serde_json::from_slice(&incoming.body), std::str::from_utf8(&incoming.body)) {
        _ if incoming.body.is_empty() => Value::Null,
        (Ok(body), _) => body,
        (Err(_), Ok(text)) => json!(text),
        (Err(_), Err(_)) => json!("<binary>"),
    };
    json!({"status": incoming.status.as_u16(), "headers": recorded_headers(step, &incoming.headers), "body": body})
}

fn recorded_headers(step: &Step, headers: &HeaderMap) -> Value {
    let mut recorded = Map::new();
    for name in HEADERS.into_iter().chain(step.record_headers.iter().map(String::as_str)) {
        let mut values: Vec<_> =
            headers.get_all(name).iter().map(|value| json!(String::from_utf8_lossy(value.as_bytes()))).collect();
        match values.len() {
            0 => {}
            1 => drop(recorded.insert(name.to_owned(), values.remove(0))),
            _ => drop(recorded.insert(name.to_owned(), Value::Array(values))),
        }
    }
    Value::Object(recorded)
}
