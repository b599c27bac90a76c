//! Query parameters as typed options, with the checks and words of kube-apiserver.

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// Looks parameters up; the first one of a name wins.
#[derive(Debug, Clone, Default)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Every value of `key`.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Go's `strconv.ParseBool`, with an empty value meaning true as kube-apiserver's converter has it.
    fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "f" | "false"))
    }

    fn integer(&self, key: &str) -> ApiResult<Option<i64>> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
        }
    }
}

/// How a `resourceVersion` on a read is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    /// Anything at least as new.
    NotOlderThan,
    /// That very state.
    Exact,
}

/// `metav1.ListOptions`.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// Which labels.
    pub labels: LabelSelector,
    /// Which fields.
    pub fields: FieldSelector,
    /// `None` when the parameter is absent or empty.
    pub resource_version: Option<u64>,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// Page size.
    pub limit: Option<usize>,
    /// Where the next page starts.
    pub continue_token: Option<String>,
    /// End a watch after that time.
    pub timeout_seconds: Option<u64>,
    /// Bookmarks are wanted.
    pub bookmarks: bool,
    /// WatchList.
    pub send_initial_events: Option<bool>,
    /// The request is a watch.
    pub watch: bool,
}

impl ListOptions {
    /// Reads and checks the options.
    pub fn parse(query: &Query, watch: bool) -> ApiResult<Self> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let limit = query.integer("limit")?;
        let timeout = query.integer("timeoutSeconds")?;
        let send_initial_events = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        let options = Self {
            labels,
            fields,
            resource_version: parse_version(query.get("resourceVersion")).map_err(|error| match watch {
                true => error,
                false => ApiError::bad_request(format!("invalid resource version: {error}")),
            })?,
            version_match: None,
            limit: limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0),
            continue_token: query.get("continue").filter(|token| !token.is_empty()).map(str::to_owned),
            timeout_seconds: timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            watch,
        };
        options.check_match(query)
    }

    /// The combination rules of `resourceVersionMatch` and `sendInitialEvents`.
    fn check_match(mut self, query: &Query) -> ApiResult<Self> {
        let asked = query.get("resourceVersionMatch").unwrap_or_default();
        let version = query.get("resourceVersion").unwrap_or_default();
        let mut errors = Vec::new();
        let mut forbid = |field: &str, why: &str| {
            errors.push(FieldError::new(FieldErrorKind::Forbidden, field, format!("Forbidden: {why}")));
        };
        if self.watch {
            if !asked.is_empty() && self.send_initial_events.is_none() {
                forbid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            if self.send_initial_events.is_some() && asked.is_empty() {
                forbid(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            } else if !asked.is_empty() && asked != "NotOlderThan" {
                errors.push(unsupported_match(asked, &["NotOlderThan"]));
            }
        } else {
            if self.send_initial_events.is_some() {
                forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
            }
            if !asked.is_empty() {
                if version.is_empty() {
                    forbid(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    );
                }
                if self.continue_token.is_some() {
                    forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
                }
                if !matches!(asked, "Exact" | "NotOlderThan") {
                    errors.push(unsupported_match(asked, &["Exact", "NotOlderThan", ""]));
                } else if asked == "Exact" && version == "0" {
                    forbid(
                        "resourceVersionMatch",
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    );
                }
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        self.version_match = match asked {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        Ok(self)
    }
}

fn unsupported_match(asked: &str, supported: &[&str]) -> FieldError {
    let list = supported.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(", ");
    FieldError::new(
        FieldErrorKind::NotSupported,
        "resourceVersionMatch",
        format!("Unsupported value: \"{asked}\": supported values: {list}"),
    )
}

/// `resourceVersion` of a read: empty means "the newest".
pub fn parse_version(text: Option<&str>) -> ApiResult<Option<u64>> {
    match text {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            // kube-apiserver does not classify this one; lists say 400 themselves.
            let error = FieldError::new(
                FieldErrorKind::Invalid,
                "resourceVersion",
                format!("Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"),
            );
            ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", error.to_string())
        }),
    }
}

/// What is done about fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped with a `Warning` header each.
    Warn,
    /// 400.
    Strict,
}

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Run everything but the write.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub field_validation: FieldValidation,
    /// `fieldManager`, if given.
    pub field_manager: Option<String>,
    /// `force` of an apply.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Reads and checks the options; `options_kind` is the name that errors use.
    pub fn parse(query: &Query, options_kind: &str, is_apply: bool) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::new(
                    FieldErrorKind::NotSupported,
                    "fieldValidation",
                    format!("Unsupported value: \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
                ));
                FieldValidation::Warn
            }
        };
        let field_manager = query.get("fieldManager").filter(|name| !name.is_empty()).map(str::to_owned);
        if let Some(manager) = &field_manager {
            errors.extend(ferrovirt_machinery::apply::validate_field_manager(manager, "fieldManager"));
        }
        let force = query.get("force").map(|_| query.flag("force"));
        if options_kind == "PatchOptions" {
            if is_apply && field_manager.is_none() {
                errors.insert(
                    0,
                    FieldError::new(
                        FieldErrorKind::Required,
                        "fieldManager",
                        "Required value: is required for apply patch",
                    ),
                );
            }
            if !is_apply && force.is_some() {
                errors.insert(
                    0,
                    FieldError::new(
                        FieldErrorKind::Forbidden,
                        "force",
                        "Forbidden: may not be specified for non-apply patch",
                    ),
                );
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", options_kind, "", &errors));
        }
        Ok(Self { dry_run, field_validation, field_manager, force })
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let mut dry_run = false;
    let values: Vec<&str> = values.collect();
    for value in &values {
        if *value == "All" {
            dry_run = true;
        } else {
            let shown = values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(",");
            errors.push(FieldError::new(
                FieldErrorKind::NotSupported,
                "dryRun",
                format!("Unsupported value: [{shown}]: supported values: \"All\""),
            ));
            break;
        }
    }
    dry_run
}

/// How dependents are treated when their owner is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose the owner reference and stay.
    Orphan,
    /// The object goes at once, dependents after it.
    Background,
    /// Dependents go first.
    Foreground,
}

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Seconds that the object may take.
    pub grace_period: Option<i64>,
    /// Only this uid.
    pub uid: Option<String>,
    /// Only this resource version.
    pub resource_version: Option<String>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// `orphanDependents` was given as false: the answer is 202 while the object is still there.
    pub explicit_cascade: bool,
    /// Run everything but the write.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From a decoded body (if any) and the query; the body wins, as in kube-apiserver.
    pub fn parse(body: Option<&Value>, query: &Query) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let mut options = Self::default();
        let (grace, propagation, orphan);
        if let Some(body) = body {
            grace = body["gracePeriodSeconds"].as_i64();
            propagation = body["propagationPolicy"].as_str().map(str::to_owned);
            orphan = body["orphanDependents"].as_bool();
            options.uid = body["preconditions"]["uid"].as_str().map(str::to_owned);
            options.resource_version = body["preconditions"]["resourceVersion"].as_str().map(str::to_owned);
            let values = body["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
            options.dry_run = dry_run(values.iter().filter_map(Value::as_str), &mut errors);
        } else {
            grace = query.integer("gracePeriodSeconds")?;
            propagation = query.get("propagationPolicy").filter(|text| !text.is_empty()).map(str::to_owned);
            orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
            options.dry_run = dry_run(query.all("dryRun"), &mut errors);
        }
        options.grace_period = grace;
        options.explicit_cascade = orphan == Some(false);
        if propagation.is_some() && orphan.is_some() {
            errors.push(FieldError::new(
                FieldErrorKind::Invalid,
                "propagationPolicy",
                format!(
                    "Invalid value: \"{}\": orphanDependents and deletionPropagation cannot be both set",
                    propagation.as_deref().unwrap_or_default()
                ),
            ));
        }
        options.propagation = match propagation.as_deref() {
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::new(
                    FieldErrorKind::NotSupported,
                    "propagationPolicy",
                    format!(
                        "Unsupported value: \"{other}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                ));
                None
            }
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        };
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
        }
    }
}
