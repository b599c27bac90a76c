//! Who tries: an account of the case's namespace, with some role there and no other right.

use anyhow::{Context, Result, ensure};
use blackbox::cluster::{Answer, Cluster, wait};
use blackbox::scene::Scene;
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

/// The account's name.
const NAME: &str = "mallory";
/// Where roles and bindings are.
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What the account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The ClusterRole `edit`, in its namespace.
    Editor,
    /// The ClusterRole `admin`, in its namespace.
    Owner,
    /// It may change objects of some kinds and make none.
    Changer,
}

/// A request, all of it chosen by the tenant.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// `{ns}` in it is the tenant's namespace.
    pub(crate) path: String,
    pub(crate) content: &'static str,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
}

impl Ask {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), content: "application/json", headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        Self { body: body.to_string().into_bytes(), ..Self::new(Method::POST, path) }
    }

    pub(crate) fn merge(path: &str, body: &Value) -> Self {
        Self::post(path, body).with_method(Method::PATCH).of("application/merge-patch+json")
    }

    pub(crate) fn with_method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// The same request, whose body says that it is of another form.
    pub(crate) fn of(self, content: &'static str) -> Self {
        Self { content, ..self }
    }

    pub(crate) fn raw(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// The tenant of a case.
pub(crate) struct Tenant {
    pub(crate) scene: Scene,
    /// The cluster, as the tenant.
    pub(crate) cluster: Cluster,
}

impl Tenant {
    /// Makes the account, and waits until its role is known.
    pub(crate) async fn new(scene: Scene, role: Role) -> Result<Self> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
        scene.create("serviceaccounts", &account).await?;
        let given = match role {
            Role::Editor => json!({"kind": "ClusterRole", "name": "edit"}),
            Role::Owner => json!({"kind": "ClusterRole", "name": "admin"}),
            Role::Changer => {
                scene.cluster.create(&scene.path(RBAC, "roles"), &changer()).await?;
                json!({"kind": "Role", "name": "changer"})
            }
        };
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": scene.namespace}],
            "roleRef": given,
        });
        binding["roleRef"]["apiGroup"] = json!("rbac.authorization.k8s.io");
        scene.cluster.create(&scene.path(RBAC, "rolebindings"), &binding).await?;
        let user = format!("system:serviceaccount:{}:{NAME}", scene.namespace);
        let cluster = scene.cluster.impersonating(&user)?;
        let known = scene.path("/api/v1", "configmaps/none");
        wait("the tenant's role", 20, || async {
            let answer = cluster.answer(Method::GET, &known, None).await?;
            Ok((answer.code == 404).then_some(()))
        })
        .await?;
        Ok(Self { scene, cluster })
    }

    /// Sends a request as the tenant.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Answer> {
        let path = ask.path.replace("{ns}", &self.scene.namespace);
        let mut request = Request::builder().method(&ask.method).uri(&path).header("content-type", ask.content);
        for (name, value) in &ask.headers {
            request = request.header(*name, *value);
        }
        let answer = self.cluster.client.send(request.body(Body::from(ask.body.clone()))?).await;
        let answer = answer.with_context(|| format!("{} {path}", ask.method))?;
        let code = answer.status().as_u16();
        let text = answer.into_body().collect_bytes().await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Answer { code, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    /// The request has to be answered with one of the codes, in words that have this part.
    pub(crate) async fn refused(&self, ask: &Ask, codes: &[u16], part: &str) -> Result<()> {
        let answer = self.ask(ask).await?;
        let said = answer.body["message"].as_str().map_or_else(|| answer.body.to_string(), str::to_owned);
        let (shown, code) = (said.chars().take(500).collect::<String>(), answer.code);
        ensure!(codes.contains(&code), "{} {} was answered with {code}: {shown}", ask.method, ask.path);
        ensure!(said.contains(part), "the answer has no {part:?}: {shown}");
        Ok(())
    }

    /// The server still serves others.
    pub(crate) async fn serves_others(&self) -> Result<()> {
        self.scene.cluster.get("/api/v1/namespaces/default").await.context("the server serves nobody else any more")?;
        Ok(())
    }
}

fn changer() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "changer"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "configmaps", "secrets"], "verbs": ["get", "patch", "update"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch", "update"]},
        ],
    })
}
