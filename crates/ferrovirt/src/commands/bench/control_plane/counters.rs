//! What an API server counts about itself: writes by resource and verb, and its processor time, from its `/metrics`.

use std::collections::BTreeMap;

use kube::Client;

/// How the server calls the ways to write, and how people do.
const VERBS: [(&str, &str); 6] = [
    ("APPLY", "apply"),
    ("DELETE", "delete"),
    ("DELETECOLLECTION", "delete collection"),
    ("PATCH", "patch"),
    ("POST", "create"),
    ("PUT", "update"),
];

/// One sort of write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Write {
    /// The resource, with its subresource if there is one: `pods/status`.
    pub(super) resource: String,
    /// `create`, `update`, `patch`, …
    pub(super) verb: &'static str,
    /// Whether the server did it; a conflict, for example, is refused.
    pub(super) accepted: bool,
}

/// The counters at one moment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counters {
    /// Requests since the server started.
    pub(super) writes: BTreeMap<Write, u64>,
    /// Seconds that the server computed since it started.
    pub(super) computed: f64,
}

impl Counters {
    /// Asks the server; `None` when it does not count.
    pub(super) async fn read(client: &Client) -> anyhow::Result<Option<Self>> {
        match client.request_text(http::Request::get("/metrics").body(Vec::new())?).await {
            Ok(text) => Ok(Some(Self::parse(&text))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(anyhow::Error::new(error).context("cannot read the API server's counters, GET /metrics")),
        }
    }

    fn parse(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if name == "process_cpu_seconds_total" {
                counters.computed = value;
            } else if let Some(labels) = name.strip_prefix("apiserver_request_total{")
                && let Some(write) = Write::parse(labels.trim_end_matches('}'))
            {
                *counters.writes.entry(write).or_default() += value as u64;
            }
        }
        counters
    }

    /// What happened since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let writes = self.writes.iter().filter_map(|(write, count)| {
            let more = count.saturating_sub(before.writes.get(write).copied().unwrap_or_default());
            (more > 0).then(|| (write.clone(), more))
        });
        Self { writes: writes.collect(), computed: self.computed - before.computed }
    }
}

impl Write {
    /// From `code="201",…,resource="pods",…,verb="POST"`; `None` for a read.
    fn parse(labels: &str) -> Option<Self> {
        // None of the values that are read here can hold a quote or a comma.
        let labels: BTreeMap<&str, &str> = labels.split("\",").filter_map(|label| label.split_once("=\"")).collect();
        let label = |name: &str| labels.get(name).map(|value| value.trim_end_matches('"'));
        let verb = label("verb")?;
        let verb = VERBS.iter().find(|(wire, _)| *wire == verb)?.1;
        let resource = match (label("resource")?, label("subresource").unwrap_or_default()) {
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        };
        Some(Self { resource, verb, accepted: label("code")?.starts_with('2') })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(resource: &str, verb: &'static str, accepted: bool) -> Write {
        Write { resource: resource.to_owned(), verb, accepted }
    }

    fn line(code: u16, resource: &str, subresource: &str, verb: &str, count: &str) -> String {
        format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"{resource}\",\
             scope=\"resource\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
        )
    }

    #[test]
    fn writes_are_counted_and_reads_are_not() {
        let text = [
            "# TYPE apiserver_request_total counter\n".to_owned(),
            line(201, "pods", "", "POST", "500"),
            line(200, "pods", "status", "PATCH", "2"),
            line(409, "pods", "", "POST", "1"),
            line(200, "pods", "", "LIST", "7"),
            "apiserver_request_total{code=\"200\"} 3\nprocess_cpu_seconds_total 12.5\nup NaN\n".to_owned(),
        ];
        let counters = Counters::parse(&text.concat());
        let expected = [
            (write("pods", "create", true), 500),
            (write("pods", "create", false), 1),
            (write("pods/status", "patch", true), 2),
        ];
        assert_eq!(counters, Counters { writes: expected.into(), computed: 12.5 });
    }

    #[test]
    fn a_difference_has_what_is_new_alone() {
        let before = Counters::parse(&(line(201, "pods", "", "POST", "3") + &line(200, "leases", "", "PUT", "9")));
        let text =
            line(201, "pods", "", "POST", "8") + &line(200, "leases", "", "PUT", "9") + "process_cpu_seconds_total 1\n";
        let expected = Counters { writes: [(write("pods", "create", true), 5)].into(), computed: 1.0 };
        assert_eq!(Counters::parse(&text).since(&before), expected);
    }
}
