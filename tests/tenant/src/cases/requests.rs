//! Requests that are small to send and large to answer. They are refused, and others are served meanwhile.

use anyhow::Result;
use blackbox::scene::Scene;
use blackbox::suite::Case;
use http::Method;
use serde_json::{Value, json};

use crate::tenant::{Ask, RBAC, Role, Tenant};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn asks() -> Vec<(&'static str, Ask, &'static [u16])> {
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)).into_bytes();
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (before, now) in ('a'..='y').zip('b'..='z') {
        bomb += &format!("{now}: &{now} [{}]\n", vec![format!("*{before}"); 9].join(", "));
    }
    let doubling: Vec<Value> =
        (0..64).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/k{n}")})).collect();
    let many: Vec<Value> = (0..20_000).map(|_| json!({"op": "test", "path": "/kind", "value": "ConfigMap"})).collect();
    let patch = |body: &[Value]| {
        Ask::new(Method::PATCH, &format!("{MAPS}/there"))
            .of("application/json-patch+json")
            .raw(json!(body).to_string().into_bytes())
    };
    let mut large = map("large");
    large["data"] = json!({"a": "x".repeat(4 << 20)});
    vec![
        ("nested", Ask::new(Method::POST, MAPS).raw(nested), &[400]),
        ("aliases", Ask::new(Method::POST, MAPS).of("application/yaml").raw(bomb.into_bytes()), &[400, 413]),
        ("large", Ask::post(MAPS, &large), &[413]),
        ("doubling", patch(&doubling), &[400, 413, 422]),
        ("many-operations", patch(&many), &[400, 413, 422]),
        ("dots-in-name", Ask::post(MAPS, &map("../../x")), &[422]),
        (
            "dots-in-path",
            Ask::get("/api/v1/namespaces/{ns}/configmaps/..%2f..%2fkube-system%2fsecrets"),
            &[400, 403, 404],
        ),
        ("long-name", Ask::post(MAPS, &map(&"a".repeat(300))), &[422]),
    ]
}

/// One case for each request, and those that are not alike.
pub(super) fn all() -> Vec<Case<Scene>> {
    let rows = asks().into_iter().map(|(name, ask, codes)| {
        let run = move |scene: Scene| {
            let ask = ask.clone();
            async move {
                let tenant = Tenant::new(scene, Role::Editor).await?;
                let mut there = map("there");
                there["data"] = json!({"a": "x"});
                tenant.scene.create("configmaps", &there).await?;
                tenant.refused(&ask, codes, "").await?;
                tenant.serves_others().await
            }
        };
        Case::new(&format!("request/{name}"), "A request that would cost much is refused, and others are served.", run)
    });
    let large_role = Case::new("request/rules", "A role with a million rights in it keeps nobody waiting.", rules);
    rows.chain([large_role]).collect()
}

/// 2 KB that are a million rights when they are multiplied out.
async fn rules(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Owner).await?;
    let texts = |prefix: &str| (0..100).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "large"},
        "rules": [{"apiGroups": texts("g"), "resources": texts("r"), "verbs": texts("v")}],
    });
    let ask = Ask::post(&format!("{RBAC}/namespaces/{{ns}}/roles?dryRun=All"), &role);
    let (refused, served) = tokio::join!(tenant.refused(&ask, &[403], ""), tenant.serves_others());
    refused.and(served)
}
