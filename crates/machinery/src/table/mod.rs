//! Tables for kubectl: which columns a kind has, and the cells of an object.
//!
//! A [`Printer`] belongs to one version of one kind. Built-in kinds have columns of their own ([`builtin`]), custom
//! resources have what their CRD says, everything else a name and an age. The server puts columns and rows into a `Table`.

mod builtin;
mod columns;
mod duration;
mod jsonpath;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use columns::Column;
pub use duration::{human_duration, since};
pub use jsonpath::{JsonPath, JsonPathError, Unfit};

/// Prints the objects of one kind.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Vec<Column>,
    rows: Rows,
}

#[derive(Clone, Debug)]
enum Rows {
    BuiltIn(builtin::Row),
    Custom(Vec<columns::CustomColumn>),
    NameAndTime,
}

impl Printer {
    /// The printer of a built-in kind; kinds without columns of their own get name and creation time.
    pub fn builtin(group: &str, kind: &str) -> Self {
        match builtin::find(group, kind) {
            Some((columns, row)) => Self { columns, rows: Rows::BuiltIn(row) },
            None => {
                let columns = vec![name_column(), builtin::column("Created At:date")];
                Self { columns, rows: Rows::NameAndTime }
            }
        }
    }

    /// The printer of a custom resource: the name, then the `additionalPrinterColumns` of its version, or its age if
    /// there are none.
    pub fn custom(additional_columns: &Value) -> Result<Self, JsonPathError> {
        let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": builtin::column("Age").description}]);
        let given = additional_columns.as_array().filter(|given| !given.is_empty());
        let mut printer = Self { columns: vec![name_column()], rows: Rows::NameAndTime };
        let mut cells = Vec::new();
        for definition in given.or(age.as_array()).into_iter().flatten() {
            let (column, cell) = columns::compile(definition)?;
            printer.columns.push(column);
            cells.push(cell);
        }
        printer.rows = Rows::Custom(cells);
        Ok(printer)
    }

    /// `columnDefinitions`.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The cells of one row, one for each column.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.rows {
            Rows::BuiltIn(row) => row(object, now),
            Rows::Custom(cells) => {
                let name = Value::from(crate::meta::name(object));
                std::iter::once(name).chain(cells.iter().map(|cell| cell.cell(object, now))).collect()
            }
            Rows::NameAndTime => {
                let created = crate::meta::text(object, "creationTimestamp");
                let created = if created.is_empty() { "0001-01-01T00:00:00Z" } else { created };
                vec![crate::meta::name(object).into(), created.into()]
            }
        }
    }

    /// `conditions` of the row: pods that have ended are marked, which lets clients hide them.
    pub fn conditions(&self, object: &Value) -> Vec<Value> {
        match &self.rows {
            Rows::BuiltIn(row) if std::ptr::fn_addr_eq(*row, builtin::POD_ROW) => builtin::pod_conditions(object),
            _ => Vec::new(),
        }
    }
}

fn name_column() -> Column {
    builtin::column("Name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:05:03Z".parse().expect("a time")
    }

    fn names(printer: &Printer) -> Vec<&str> {
        printer.columns().iter().map(|column| column.name.as_str()).collect()
    }

    #[test]
    fn custom_resources_have_their_columns() {
        let object =
            json!({"metadata": {"name": "vm", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"ready": true}});
        let columns = json!([
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
            {"name": "Node", "type": "string", "jsonPath": ".status.nodeName", "priority": 1},
        ]);
        let printer = Printer::custom(&columns).expect("legal paths");
        assert_eq!(names(&printer), ["Name", "Age", "Ready", "Node"]);
        assert_eq!(printer.row(&object, now()), [json!("vm"), json!("5m3s"), json!(true), Value::Null]);
        let bare = Printer::custom(&Value::Null).expect("nothing to compile");
        assert_eq!((names(&bare), bare.columns()[1].kind.as_str()), (vec!["Name", "Age"], "date"));
        assert_eq!(bare.row(&object, now()), [json!("vm"), json!("5m3s")]);
    }

    #[test]
    fn unknown_kinds_have_name_and_time() {
        let printer = Printer::builtin("rbac.authorization.k8s.io", "ClusterRole");
        assert_eq!(names(&printer), ["Name", "Created At"]);
        assert_eq!((printer.columns()[0].format.as_str(), printer.columns()[1].kind.as_str()), ("name", "date"));
        let object = json!({"metadata": {"name": "view", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(printer.row(&object, now()), [json!("view"), json!("2026-01-01T00:00:00Z")]);
        assert!(printer.conditions(&object).is_empty());
    }

    #[test]
    fn every_built_in_row_fits_its_columns() {
        // An empty object of each kind: nothing may be missing so badly that the row gets shorter.
        for (group, kind) in builtin::kinds() {
            let printer = Printer::builtin(group, kind);
            // kube-apiserver gives IP addresses an age that has no column.
            let extra = usize::from(kind == "IPAddress");
            assert_eq!(printer.row(&json!({}), now()).len(), printer.columns().len() + extra, "{group} {kind}");
            assert!(printer.columns().iter().all(|column| !column.description.is_empty()), "{group} {kind}");
        }
    }
}
