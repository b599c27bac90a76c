//! Tables as the server makes them, printed as kubectl prints them.

use serde_json::Value;

/// Columns that are wanted beside the server's.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra {
    /// The less important ones too.
    pub(super) wide: bool,
    /// The namespace in front.
    pub(super) namespace: bool,
    /// The labels at the end.
    pub(super) labels: bool,
    /// No line of titles.
    pub(super) no_headers: bool,
}

/// Prints tables; remembers columns and widths for the rows of a watch.
#[derive(Debug, Default)]
pub(super) struct Printer {
    extra: Extra,
    /// Title and index in the row's cells.
    columns: Vec<(String, usize)>,
    widths: Vec<usize>,
    /// In front of names, when several kinds are printed.
    prefix: String,
    has_titles: bool,
}

impl Printer {
    pub(super) fn new(extra: Extra, prefix: String) -> Self {
        Self { extra, prefix, ..Self::default() }
    }

    /// The text of a table; titles once.
    pub(super) fn print(&mut self, table: &Value) -> String {
        let definitions = table["columnDefinitions"].as_array();
        if let Some(definitions) = definitions.filter(|definitions| !definitions.is_empty()) {
            let wanted =
                |(_, column): &(usize, &Value)| self.extra.wide || column["priority"].as_i64().unwrap_or(0) == 0;
            let title = |column: &Value| column["name"].as_str().unwrap_or_default().to_uppercase();
            self.columns =
                definitions.iter().enumerate().filter(wanted).map(|(index, column)| (title(column), index)).collect();
        }
        let mut lines = Vec::new();
        if !self.has_titles && !self.extra.no_headers {
            lines.push(self.titles());
            self.has_titles = true;
        }
        lines.extend(table["rows"].as_array().into_iter().flatten().map(|row| self.row(row)));
        for line in &lines {
            self.widths.resize(self.widths.len().max(line.len()), 0);
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        lines.iter().map(|line| self.line(line)).collect()
    }

    fn titles(&self) -> Vec<String> {
        let mut titles = Vec::new();
        titles.extend(self.extra.namespace.then(|| "NAMESPACE".to_owned()));
        titles.extend(self.columns.iter().map(|(title, _)| title.clone()));
        titles.extend(self.extra.labels.then(|| "LABELS".to_owned()));
        titles
    }

    fn row(&self, row: &Value) -> Vec<String> {
        let metadata = &row["object"]["metadata"];
        let mut cells = Vec::new();
        if self.extra.namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        for (position, (_, index)) in self.columns.iter().enumerate() {
            let cell = cell(&row["cells"][*index]);
            cells.push(if position == 0 { format!("{}{cell}", self.prefix) } else { cell });
        }
        if self.extra.labels {
            let pair = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
            let labels: Vec<String> = metadata["labels"].as_object().into_iter().flatten().map(pair).collect();
            cells.push(if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") });
        }
        cells
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            line.push_str(cell);
            if index + 1 < cells.len() {
                let gap = self.widths.get(index).copied().unwrap_or(0).saturating_sub(cell.chars().count()) + 3;
                line.push_str(&" ".repeat(gap));
            }
        }
        format!("{}\n", line.trim_end())
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        // What users wrote must not move the cursor.
        Value::String(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Value {
        json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Age"}, {"name": "IP", "priority": 1}, {"name": "Ready"}],
            "rows": [
                {"cells": ["web", "5m", "10.0.0.1", true], "object": {"metadata": {"namespace": "shop", "labels": {"a": "b"}}}},
                {"cells": ["a-longer-name", "1d", null, null], "object": {"metadata": {"namespace": "default"}}},
                {"cells": ["evil\u{1b}[2J", "0s", "", false], "object": {"metadata": {}}},
            ],
        })
    }

    #[test]
    fn columns_are_aligned() {
        insta::assert_snapshot!(Printer::default().print(&table()));
    }

    #[test]
    fn columns_can_be_added() {
        let extra = Extra { wide: true, namespace: true, labels: true, no_headers: false };
        insta::assert_snapshot!(Printer::new(extra, "vm/".to_owned()).print(&table()));
    }

    #[test]
    fn rows_of_a_watch_follow_without_titles() {
        let mut printer = Printer::default();
        printer.print(&table());
        let next = json!({"columnDefinitions": null, "rows": [{"cells": ["db", "1s", "", true]}]});
        assert_eq!(printer.print(&next), "db              1s    true\n");
    }
}
