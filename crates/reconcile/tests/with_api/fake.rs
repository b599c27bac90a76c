//! An API server in memory: create, read, replace, merge-patch, delete, list and watch, for any kind.
//!
//! It knows nothing of kinds: an object lives at the path that the client sends. Every request is logged, and tests can make it
//! refuse, hang or break off.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Collection (the plural alone: no test has two groups with the same one), namespace and name.
type Key = (String, String, String);
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    history: Vec<(u64, String, Value)>,
    watchers: Vec<(String, mpsc::UnboundedSender<Value>)>,
    version: u64,
    log: Vec<String>,
    rules: Vec<Rule>,
}

/// What happens to requests whose `who METHOD path` contains the text.
struct Rule {
    matching: String,
    times: usize,
    effect: Effect,
}

#[derive(Clone)]
pub(crate) enum Effect {
    /// Answers with this code and reason.
    Refuse(u16, &'static str),
    /// Never answers.
    Hang,
    /// Does what was asked, but the answer gets lost.
    LoseAnswer,
}

struct Target {
    collection: String,
    namespace: String,
    name: Option<String>,
    status_only: bool,
}

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        self.client_of("somebody")
    }

    /// A client whose requests [`disturb`](Self::disturb) can tell from those of others.
    pub(crate) fn client_of(&self, who: &'static str) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.serve(who, request).await) }
        });
        Client::new(service, "default")
    }

    /// Makes the next `times` matching requests go wrong.
    pub(crate) fn disturb(&self, matching: &str, times: usize, effect: Effect) {
        self.state.lock().rules.push(Rule { matching: matching.to_owned(), times, effect });
    }

    /// The writes so far, as `METHOD path`; clears the log.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let log = std::mem::take(&mut self.state.lock().log);
        log.into_iter().filter(|line| !line.starts_with("GET ")).collect()
    }

    /// Ends all watches; `forget` also makes their history unavailable, so that clients must list again.
    pub(crate) fn break_watches(&self, forget: bool) {
        let mut state = self.state.lock();
        state.watchers.clear();
        if forget {
            state.history.clear();
        }
    }

    pub(crate) fn get(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().objects.get(&key).cloned()
    }

    /// Puts an object in place as another client would.
    pub(crate) fn put(&self, collection: &str, object: &impl serde::Serialize) -> Value {
        let object = serde_json::to_value(object).unwrap();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (collection.to_owned(), text("namespace"), text("name"));
        self.state.lock().store(&key, object)
    }

    pub(crate) fn remove(&self, collection: &str, namespace: &str, name: &str) {
        self.state.lock().remove(&(collection.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Removes an object without telling any watcher, now or later.
    pub(crate) fn remove_silently(&self, collection: &str, namespace: &str, name: &str) {
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        let mut state = self.state.lock();
        state.objects.remove(&key);
        state.version += 1;
    }

    async fn serve(&self, who: &str, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let line = format!("{} {}", parts.method, parts.uri.path());
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        self.state.lock().log.push(line.clone());
        let effect = self.state.lock().effect(&format!("{who} {line}"));
        match effect {
            Some(Effect::Refuse(code, reason)) => return refuse(code, reason),
            Some(Effect::Hang) => std::future::pending::<()>().await,
            Some(Effect::LoseAnswer) | None => {}
        }
        let answer = self.state.lock().handle(parts.method.as_str(), parts.uri.path(), &query, body);
        if matches!(effect, Some(Effect::LoseAnswer)) {
            return refuse(504, "Timeout");
        }
        answer
    }
}

impl State {
    fn effect(&mut self, line: &str) -> Option<Effect> {
        let rule = self.rules.iter_mut().find(|rule| rule.times > 0 && line.contains(&rule.matching))?;
        rule.times -= 1;
        Some(rule.effect.clone())
    }

    fn handle(&mut self, method: &str, path: &str, query: &BTreeMap<String, String>, body: Value) -> Answer {
        let Target { collection, namespace, name, status_only } = parse(path);
        let Some(name) = name else {
            return match method {
                "POST" => self.create(collection, namespace, body),
                _ if query.get("watch").is_some_and(|watch| watch == "true") => self.watch(&collection, query),
                _ => self.list(&collection, &namespace),
            };
        };
        let key = (collection, namespace, name);
        let Some(current) = self.objects.get(&key).cloned() else { return refuse(404, "NotFound") };
        match method {
            "GET" => answer(200, &current),
            "PUT" => self.replace(&key, &current, body, status_only),
            "PATCH" => {
                let mut merged = current.clone();
                merge(&mut merged, &body);
                self.replace(&key, &current, merged, status_only)
            }
            "DELETE" => {
                let wanted = &body["preconditions"];
                if differs(&wanted["uid"], &current["metadata"]["uid"])
                    || differs(&wanted["resourceVersion"], &current["metadata"]["resourceVersion"])
                {
                    return refuse(409, "Conflict");
                }
                self.remove(&key);
                answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => refuse(405, "MethodNotAllowed"),
        }
    }

    fn create(&mut self, collection: String, namespace: String, object: Value) -> Answer {
        let key = (collection, namespace, object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        if self.objects.contains_key(&key) {
            return refuse(409, "AlreadyExists");
        }
        answer(201, &self.store(&key, object))
    }

    fn replace(&mut self, key: &Key, current: &Value, mut new: Value, status_only: bool) -> Answer {
        let (old_meta, new_meta) = (&current["metadata"], &new["metadata"]);
        if differs(&new_meta["uid"], &old_meta["uid"])
            || differs(&new_meta["resourceVersion"], &old_meta["resourceVersion"])
        {
            return refuse(409, "Conflict");
        }
        if status_only {
            let status = new["status"].take();
            new = current.clone();
            new["status"] = status;
        }
        new["metadata"]["uid"] = old_meta["uid"].clone();
        answer(200, &self.store(key, new))
    }

    fn store(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid{:05}", self.version));
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = if self.objects.contains_key(key) { "MODIFIED" } else { "ADDED" };
        self.objects.insert(key.clone(), object.clone());
        self.tell(&key.0, &json!({"type": kind, "object": object}));
        object
    }

    fn remove(&mut self, key: &Key) {
        if let Some(mut object) = self.objects.remove(key) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell(&key.0, &json!({"type": "DELETED", "object": object}));
        }
    }

    fn tell(&mut self, collection: &str, event: &Value) {
        self.history.push((self.version, collection.to_owned(), event.clone()));
        self.watchers.retain(|(watched, sender)| watched != collection || sender.unbounded_send(event.clone()).is_ok());
    }

    fn list(&self, collection: &str, namespace: &str) -> Answer {
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|((held, ns, _), _)| held == collection && (namespace.is_empty() || ns == namespace))
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        answer(200, &json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    fn watch(&mut self, collection: &str, query: &BTreeMap<String, String>) -> Answer {
        let since: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default();
        let oldest = self.history.first().map_or(self.version, |(version, ..)| version - 1);
        let (sender, receiver) = mpsc::unbounded();
        if since < oldest {
            let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            let _ = sender.unbounded_send(json!({"type": "ERROR", "object": gone}));
        } else {
            let missed = self.history.iter().filter(|(version, held, _)| *version > since && held == collection);
            for (_, _, event) in missed {
                let _ = sender.unbounded_send(event.clone());
            }
            self.watchers.push((collection.to_owned(), sender));
        }
        let lines = receiver.map(|event| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

/// `/api/v1/namespaces/shop/pods/a/status` and its shorter forms.
fn parse(path: &str) -> Target {
    let mut parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let group_length = if parts[0] == "api" { 2 } else { 3 };
    parts.drain(..group_length);
    let namespace = if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2).next_back().unwrap_or_default()
    } else {
        ""
    };
    Target {
        collection: parts[0].to_owned(),
        namespace: namespace.to_owned(),
        name: parts.get(1).map(|name| (*name).to_owned()),
        status_only: parts.get(2) == Some(&"status"),
    }
}

/// A condition that the client left out always holds.
fn differs(wanted: &Value, actual: &Value) -> bool {
    !wanted.is_null() && wanted != actual
}

fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(changes) if target.is_object() => {
            for (field, change) in changes {
                if change.is_null() {
                    target.as_object_mut().unwrap().remove(field);
                } else {
                    merge(&mut target[field], change);
                }
            }
        }
        other => *target = other.clone(),
    }
}

fn refuse(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("scripted {reason}"),
    });
    answer(code, &status)
}

fn answer(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}
