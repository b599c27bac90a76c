//! CEL expressions: compiling them, giving them Kubernetes objects, and the match conditions of webhooks.
//!
//! The language and its Kubernetes library come from kube-cel. Values are converted here, because how a field looks to
//! an expression depends on its schema: a date is a timestamp, a field's name is escaped, a map's key is not.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use crate::schema::{Schema, Type};

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Program {
    expression: Expression,
}

impl Program {
    /// Compiles an expression; the error is what the compiler says, line by line.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        match Parser::default().enable_optional_syntax(true).parse(source) {
            Ok(mut expression) => {
                optional_chains(&mut expression);
                Ok(Self { expression })
            }
            Err(errors) => Err(errors.to_string().replace("\n| ", "\n | ")),
        }
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.expression
    }

    pub(crate) fn uses(&self, variable: &str) -> bool {
        self.expression.references().has_variable(variable)
    }

    /// Evaluates the expression with the given variables.
    pub(crate) fn evaluate<'v>(
        &self,
        variables: impl IntoIterator<Item = (&'v str, CelValue)>,
    ) -> Result<CelValue, ExecutionError> {
        // Registering the library takes longer than most rules; each thread does it once.
        thread_local!(static LIBRARY: Context<'static> = Context::default().with_all());
        LIBRARY.with(|library| {
            let mut context = library.new_inner_scope();
            for (name, value) in variables {
                context.add_variable_from_value(name, value);
            }
            CelValue::resolve(&self.expression, &context)
        })
    }
}

/// Turns optional selections into optional indexing and says whether the expression is one.
///
/// The interpreter's `a.?b` fails where `b` is missing and does not carry on in `a.?b.c`; its `a[?'b']` does both right.
fn optional_chains(expression: &mut Expression) -> bool {
    match &mut expression.expr {
        Expr::Select(select) => {
            let on_optional = optional_chains(&mut select.operand);
            if on_optional && !select.test {
                let field = Expr::Literal(LiteralValue::String(std::mem::take(&mut select.field).as_str().into()));
                let args = vec![std::mem::take(&mut *select.operand), Expression { id: expression.id, expr: field }];
                expression.expr =
                    Expr::Call(CallExpr { func_name: operators::OPT_INDEX.to_owned(), target: None, args });
            }
            on_optional
        }
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                optional_chains(target);
            }
            let of_args: Vec<bool> = call.args.iter_mut().map(optional_chains).collect();
            if call.func_name == operators::OPT_SELECT {
                call.func_name = operators::OPT_INDEX.to_owned();
            }
            let on_optional = call.func_name == operators::INDEX && of_args.first() == Some(&true);
            on_optional || call.func_name == operators::OPT_INDEX
        }
        Expr::Comprehension(loop_) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = &mut **loop_;
            for part in [iter_range, accu_init, loop_cond, loop_step, result] {
                optional_chains(part);
            }
            false
        }
        Expr::List(list) => {
            for element in &mut list.elements {
                optional_chains(element);
            }
            false
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    optional_chains(&mut entry.key);
                    optional_chains(&mut entry.value);
                }
            }
            false
        }
        _ => false,
    }
}

/// An evaluation error in the words of cel-go.
pub(crate) fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload | ExecutionError::UnsupportedBinaryOperator(..) => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        other => {
            let text = other.to_string();
            let mut chars = text.chars();
            chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
        }
    }
}

/// Words that are no names in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name under which an expression reaches a field.
pub(crate) fn escape(field: &str) -> String {
    if RESERVED.contains(&field) {
        return format!("__{field}__");
    }
    field.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// A JSON value as an expression sees it; without a schema it is plain data.
pub(crate) fn to_cel(value: &Value, schema: Option<&Schema>) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => number_to_cel(number, schema),
        Value::String(text) => text_to_cel(text, schema),
        Value::Array(items) => {
            let element = schema.and_then(|schema| schema.items.as_deref());
            CelValue::List(Arc::new(items.iter().map(|item| to_cel(item, element)).collect()))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, child) in fields {
                let known = schema.and_then(|schema| schema.properties.get(name)).map(AsRef::as_ref);
                let is_field = known.is_some() || schema.is_some_and(|schema| !schema.properties.is_empty());
                let below = known.or_else(|| schema.and_then(|schema| schema.additional_properties.as_deref()));
                let key = if is_field { escape(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(key)), to_cel(child, below));
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "validation let only whole numbers through")]
fn number_to_cel(number: &serde_json::Number, schema: Option<&Schema>) -> CelValue {
    let kind = schema.map_or(Type::Any, |schema| schema.kind);
    match (number.as_i64(), number.as_f64()) {
        (_, Some(float)) if kind == Type::Number => CelValue::Float(float),
        (Some(whole), _) => CelValue::Int(whole),
        (None, Some(float)) if kind == Type::Integer => CelValue::Int(float as i64),
        (None, float) => CelValue::Float(float.unwrap_or(f64::NAN)),
    }
}

fn text_to_cel(text: &str, schema: Option<&Schema>) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    let checks = schema.filter(|schema| schema.kind == Type::String).and_then(|schema| schema.checks.as_deref());
    // The library's own conversions make the same values as an expression's `timestamp(…)` does.
    let converted = match checks.and_then(|checks| checks.format.as_deref()) {
        Some("date-time" | "datetime") => convert(&TIMESTAMP, text.to_owned()),
        Some("date") => convert(&TIMESTAMP, format!("{text}T00:00:00Z")),
        Some("duration") => convert(&DURATION, text.to_owned()),
        Some("byte") => convert(&BYTES, text.to_owned()),
        _ => None,
    };
    converted.unwrap_or_else(plain)
}

/// Runs one of the library's conversions, each compiled once.
fn convert(conversion: &LazyLock<Option<Program>>, text: String) -> Option<CelValue> {
    conversion.as_ref()?.evaluate([("text", CelValue::String(Arc::new(text)))]).ok()
}

static TIMESTAMP: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("timestamp(text)").ok());
static DURATION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("duration(text)").ok());
static BYTES: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("base64.decode(text)").ok());

/// Why a match condition has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchConditionError {
    /// The expression is none.
    #[error("compilation failed: {0}")]
    Compile(String),
    /// The expression asks the authorizer, which is not offered here.
    #[error("the variable authorizer is not supported in match conditions")]
    Authorizer,
    /// The evaluation failed.
    #[error("{0}")]
    Evaluation(String),
    /// The result is not true or false.
    #[error("must evaluate to bool")]
    NotBool,
}

/// One entry of a webhook's `matchConditions`.
#[derive(Debug)]
pub struct MatchCondition {
    /// The name that errors mention.
    pub name: String,
    program: Program,
}

/// What a match condition can look at.
#[derive(Clone, Copy, Debug)]
pub struct MatchVariables<'v> {
    /// The object after the change; `None` on deletion.
    pub object: Option<&'v Value>,
    /// The object before the change; `None` on creation.
    pub old_object: Option<&'v Value>,
    /// The `AdmissionRequest` without the two objects.
    pub request: &'v Value,
}

impl MatchCondition {
    /// Compiles the expression of a condition.
    pub fn compile(name: &str, expression: &str) -> Result<Self, MatchConditionError> {
        let program = Program::compile(expression).map_err(MatchConditionError::Compile)?;
        if program.uses("authorizer") {
            return Err(MatchConditionError::Authorizer);
        }
        if let Some(variable) = undeclared(program.expression(), &["object", "oldObject", "request"]) {
            let place = crate::schema::rules::place_of(expression, &variable);
            let text = format!("undeclared reference to '{variable}' (in container '')");
            return Err(MatchConditionError::Compile(crate::schema::rules::compiler_message(expression, place, &text)));
        }
        Ok(Self { name: name.to_owned(), program })
    }

    /// Whether the request is one for the webhook.
    pub fn matches(&self, variables: &MatchVariables<'_>) -> Result<bool, MatchConditionError> {
        let plain = |value: Option<&Value>| value.map_or(CelValue::Null, |value| to_cel(value, None));
        let result = self.program.evaluate([
            ("object", plain(variables.object)),
            ("oldObject", plain(variables.old_object)),
            ("request", plain(Some(variables.request))),
        ]);
        match result {
            Ok(CelValue::Bool(answer)) => Ok(answer),
            Ok(_) => Err(MatchConditionError::NotBool),
            Err(error) => Err(MatchConditionError::Evaluation(error_text(&error))),
        }
    }
}

/// The first variable of an expression that is not among the declared ones.
fn undeclared(expression: &Expression, declared: &[&str]) -> Option<String> {
    let mut found = None;
    crate::schema::rules::walk_variables(expression, &mut declared.to_vec(), &mut |name| {
        found.get_or_insert_with(|| name.to_owned());
    });
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(expression: &str) -> Result<bool, MatchConditionError> {
        let object = json!({"metadata": {"labels": {"a-b/c": "x"}}, "spec": {"n": 3}});
        let request = json!({"operation": "CREATE", "userInfo": {"username": "u", "groups": ["g"]}});
        let variables = MatchVariables { object: Some(&object), old_object: None, request: &request };
        MatchCondition::compile("c", expression)?.matches(&variables)
    }

    #[test]
    fn conditions_see_the_request() {
        assert_eq!(matches("request.operation == 'CREATE' && oldObject == null"), Ok(true));
        assert_eq!(matches("object.metadata.labels['a-b/c'] == 'x' && object.spec.n > 2"), Ok(true));
        assert_eq!(matches("'other' in request.userInfo.groups"), Ok(false));
        assert_eq!(matches("object.metadata.?annotations.orValue({}).size() == 0"), Ok(true));
        assert_eq!(matches("object.?spec.n.orValue(0) == 3 && object.?status.x.y.orValue(1) == 1"), Ok(true));
        assert_eq!(
            matches("!object.?status.x.hasValue() && object.metadata.?labels['no'].orValue('') == ''"),
            Ok(true)
        );
        assert_eq!(matches("request.userInfo.groups.all(g, g != 'x')"), Ok(true));
    }

    #[test]
    fn each_error_is_told() {
        assert!(matches!(matches("object.spec.n >"), Err(MatchConditionError::Compile(_))));
        assert_eq!(matches("authorizer.group('').check('get').allowed()"), Err(MatchConditionError::Authorizer));
        assert_eq!(matches("object.spec.missing == 1").expect_err("fails").to_string(), "no such key: missing");
        assert_eq!(matches("object.spec.n"), Err(MatchConditionError::NotBool));
        assert!(matches("nothing == 1").expect_err("fails").to_string().contains("undeclared reference to 'nothing'"));
    }

    #[test]
    fn field_names_are_escaped() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a_b", "a_b"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(escape(name), escaped);
        }
    }

    #[test]
    fn values_take_the_type_of_their_schema() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "at": {"type": "string", "format": "date-time"}, "for": {"type": "string", "format": "duration"},
            "raw": {"type": "string", "format": "byte"}, "ratio": {"type": "number"}, "whole": {"type": "integer"}}}))
        .expect("parses");
        let value = to_cel(
            &json!({"at": "2026-01-01T00:00:00Z", "for": "90s", "raw": "aGk=", "ratio": 1, "whole": 2.0}),
            Some(&schema),
        );
        let check = |rule: &str| {
            Program::compile(rule).expect("compiles").evaluate([("self", value.clone())]).expect("evaluates")
        };
        for rule in [
            "self.at < timestamp('2026-02-01T00:00:00Z')",
            "self.__for__ == duration('1m30s')",
            "self.raw == b'hi'",
            "self.ratio == 1.0",
            "self.whole == 2",
        ] {
            assert_eq!(check(rule), CelValue::Bool(true), "{rule}");
        }
    }
}
