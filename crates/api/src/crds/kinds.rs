//! What each kind is called, where it lives, and what `kubectl get` shows of it.

use ferrovirt_kubernetes::{CustomResourceDefinition, Foreign};
use k8s_openapi::ListableResource;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    self, CustomResourceColumnDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceSubresourceStatus, CustomResourceSubresources,
    CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde_json::Value;

use super::structural::{Descriptions, structural_schema};
use crate::names::labels;
use crate::object::Object;
use crate::{KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};

/// Everything about a kind that its type does not say.
pub(super) struct Kind {
    group: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    singular: &'static str,
    plural: &'static str,
    version: &'static str,
    older_versions: &'static [&'static str],
    scope: Scope,
    short_names: &'static [&'static str],
    /// Shown by `kubectl get all`.
    in_all: bool,
    /// Has a `/status` of its own.
    status: bool,
    label: &'static str,
    columns: Vec<Column>,
    schema: fn(Descriptions) -> Value,
}

/// Where objects of a kind live.
enum Scope {
    Namespaced,
    Cluster,
}

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: i32,
}

const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 0 }
}

const fn wide(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 1 }
}

const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");
const PHASE: Column = column("Phase", "string", ".status.phase");
const READY: Column = column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status");

impl Kind {
    fn of<T: Object + ListableResource + JsonSchema>() -> Self {
        Self {
            group: T::GROUP,
            kind: T::KIND,
            list_kind: T::LIST_KIND,
            singular: T::SINGULAR,
            plural: T::URL_PATH_SEGMENT,
            version: T::VERSION,
            older_versions: T::OLDER_VERSIONS,
            scope: Scope::Namespaced,
            short_names: &[],
            in_all: true,
            status: true,
            label: labels::APP,
            columns: Vec::new(),
            schema: structural_schema::<T>,
        }
    }

    /// The CRD.
    pub(super) fn definition(&self) -> CustomResourceDefinition {
        let mut versions = vec![self.version(self.version, Descriptions::Keep)];
        for older in self.older_versions {
            let mut version = self.version(older, Descriptions::Drop);
            version.storage = false;
            version.deprecated = Some(true);
            let group = self.group;
            let warning = format!("{group}/{older} is now deprecated and will be removed in a future release.");
            version.deprecation_warning = Some(warning);
            versions.push(version);
        }
        Foreign(v1::CustomResourceDefinition {
            metadata: ObjectMeta {
                name: Some(format!("{}.{}", self.plural, self.group)),
                labels: Some([(self.label.to_owned(), String::new())].into()),
                ..ObjectMeta::default()
            },
            spec: CustomResourceDefinitionSpec {
                group: self.group.to_owned(),
                names: self.names(),
                scope: match self.scope {
                    Scope::Namespaced => "Namespaced".to_owned(),
                    Scope::Cluster => "Cluster".to_owned(),
                },
                versions,
                ..CustomResourceDefinitionSpec::default()
            },
            status: None,
        })
    }

    fn names(&self) -> CustomResourceDefinitionNames {
        let words = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Some(words).filter(|words| !words.is_empty())
        };
        CustomResourceDefinitionNames {
            categories: words(if self.in_all { &["all"] } else { &[] }),
            kind: self.kind.to_owned(),
            list_kind: Some(self.list_kind.to_owned()),
            plural: self.plural.to_owned(),
            short_names: words(self.short_names),
            singular: Some(self.singular.to_owned()),
        }
    }

    fn version(&self, name: &str, descriptions: Descriptions) -> CustomResourceDefinitionVersion {
        let columns: Vec<_> = self.columns.iter().map(Column::definition).collect();
        CustomResourceDefinitionVersion {
            name: name.to_owned(),
            served: true,
            storage: true,
            additional_printer_columns: Some(columns).filter(|columns| !columns.is_empty()),
            schema: Some(CustomResourceValidation { open_api_v3_schema: Some(self.schema(descriptions)) }),
            subresources: self.status.then(|| CustomResourceSubresources {
                scale: None,
                status: Some(CustomResourceSubresourceStatus(Value::Object(serde_json::Map::new()))),
            }),
            ..CustomResourceDefinitionVersion::default()
        }
    }

    fn schema(&self, descriptions: Descriptions) -> JSONSchemaProps {
        let schema = (self.schema)(descriptions);
        #[expect(clippy::expect_used, reason = "the schema is compiled in and every one is built by the tests")]
        serde_json::from_value(schema).expect("a structural schema is made of schema properties")
    }
}

impl Column {
    fn definition(&self) -> CustomResourceColumnDefinition {
        CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: self.kind.to_owned(),
            json_path: self.path.to_owned(),
            priority: Some(self.priority).filter(|priority| *priority != 0),
            ..CustomResourceColumnDefinition::default()
        }
    }
}

/// Every kind of this crate.
pub(super) fn all() -> Vec<Kind> {
    vec![
        Kind {
            short_names: &["vm", "vms"],
            columns: vec![AGE, column("Status", "string", ".status.printableStatus"), READY],
            ..Kind::of::<VirtualMachine>()
        },
        Kind {
            short_names: &["vmi", "vmis"],
            // Its status is written together with the rest of it.
            status: false,
            columns: vec![
                AGE,
                PHASE,
                column("IP", "string", ".status.interfaces[0].ipAddress"),
                column("NodeName", "string", ".status.nodeName"),
                READY,
                wide("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status"),
                wide("Paused", "string", ".status.conditions[?(@.type=='Paused')].status"),
            ],
            ..Kind::of::<VirtualMachineInstance>()
        },
        Kind {
            short_names: &["vmim", "vmims"],
            columns: vec![PHASE, column("VMI", "string", ".spec.vmiName")],
            ..Kind::of::<VirtualMachineInstanceMigration>()
        },
        Kind {
            short_names: &["kv", "kvs"],
            columns: vec![AGE, PHASE],
            label: labels::OPERATOR,
            ..Kind::of::<KubeVirt>()
        },
        Kind { scope: Scope::Cluster, in_all: false, ..Kind::of::<MigrationPolicy>() },
    ]
}
