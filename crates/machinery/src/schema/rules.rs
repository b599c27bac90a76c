//! The rules of `x-kubernetes-validations`: compiled once per schema, checked when they are written and when objects
//! are.

use std::sync::{Arc, OnceLock};

use kube_cel::cel::Value as CelValue;
use kube_cel::cel::common::ast::{EntryExpr, Expr, operators};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::Expression;
use serde_json::Value;

use super::meta::object_meta;
use super::report::{self, Path};
use super::validate::{Old, blocks_rules};
use super::{Rule, Schema, Type};
use crate::cel::{Program, error_text, escape, to_cel};
use crate::error::{FieldError, FieldErrorKind};

/// The longest message that a `messageExpression` may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// A rule's programs, filled in when first needed and shared by copies of the rule.
#[derive(Clone, Default)]
pub(crate) struct Compiled(OnceLock<Arc<Programs>>);

struct Programs {
    rule: Result<Program, String>,
    message: Option<Result<Program, String>>,
    uses_old_self: bool,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "Compiled" } else { "Compiled(not yet)" })
    }
}

/// Programs say nothing that the rule's text does not say.
impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Rule {
    fn programs(&self) -> &Programs {
        self.compiled.0.get_or_init(|| {
            let rule = Program::compile(&self.rule);
            let uses_old_self = rule.as_ref().is_ok_and(|program| program.uses("oldSelf"));
            let message = self.message_expression.as_deref().map(Program::compile);
            Arc::new(Programs { rule, message, uses_old_self })
        })
    }

    /// The rule, as errors about it name it.
    fn title(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.rule).trim()
    }
}

/// Runs all rules of a schema, unless the object has errors that would make them meaningless.
pub(super) fn check_unless_blocked(schema: &Schema, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !schema.rules_below {
        return;
    }
    if errors.iter().any(blocks_rules) {
        const SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(report::invalid("", &Value::Null, SKIPPED));
        return;
    }
    let old = old.map(|old| Old::new(old, schema));
    walk(schema, value, Before { old, parent_unchanged: false }, &Path::ROOT, errors);
}

/// Runs the rules of one value that is no whole object, such as a default.
pub(super) fn check_value(schema: &Schema, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if schema.rules_below {
        let old = old.map(|old| Old::new(old, schema));
        walk(schema, value, Before { old, parent_unchanged: false }, &Path::ROOT, errors);
    }
}

/// What is known about a value's past.
#[derive(Clone, Copy)]
struct Before<'o> {
    old: Option<Old<'o>>,
    /// The nearest part around it that has a past is the same as before.
    parent_unchanged: bool,
}

impl<'o> Before<'o> {
    fn unchanged(self, value: &Value) -> bool {
        match self.old {
            Some(old) => old.is(value),
            None => self.parent_unchanged,
        }
    }

    fn below(self, value: &Value, find: impl FnOnce(Old<'o>) -> Option<Old<'o>>) -> Self {
        match self.old {
            Some(old) => match find(old) {
                None => Self { old: None, parent_unchanged: old.is(value) },
                found => Self { old: found, parent_unchanged: false },
            },
            None => self,
        }
    }
}

fn walk(schema: &Schema, value: &Value, before: Before<'_>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !schema.rules_below || value.is_null() {
        return;
    }
    if !schema.rules.is_empty() {
        evaluate_all(schema, value, before, path, errors);
    }
    match value {
        Value::Array(items) => {
            let Some(element) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                let before = before.below(value, |old| old.element(item));
                walk(element, item, before, &path.index(index), errors);
            }
        }
        Value::Object(fields) => {
            for (name, child) in fields {
                let (next, place) = match (schema.properties.get(name), &schema.additional_properties) {
                    (Some(known), _) => (known, path.field(name)),
                    (None, Some(values)) => (values, path.key(name)),
                    (None, None) => continue,
                };
                walk(next, child, before.below(value, |old| old.field(name)), &place, errors);
            }
        }
        _ => {}
    }
}

fn evaluate_all(schema: &Schema, value: &Value, before: Before<'_>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let whole = path.is_root().then(|| schema.with_object_meta());
    let shape = whole.as_ref().unwrap_or(schema);
    let this = to_cel(value, Some(shape));
    let old = before.old.filter(|old| !old.value.is_null()).map(|old| to_cel(old.value, Some(shape)));
    for rule in &schema.rules {
        let programs = rule.programs();
        if programs.uses_old_self && old.is_none() && !rule.optional_old_self {
            continue;
        }
        let Some(error) = evaluate(schema, rule, value, &this, old.as_ref(), path) else { continue };
        if programs.uses_old_self || error.is_failure || !before.unchanged(value) {
            errors.push(error.error);
        }
    }
}

/// A rule that is not true, or that could not be evaluated.
struct Broken {
    error: FieldError,
    /// It could not be evaluated; that is never tolerated.
    is_failure: bool,
}

fn evaluate(
    schema: &Schema,
    rule: &Rule,
    value: &Value,
    this: &CelValue,
    old: Option<&CelValue>,
    path: &Path<'_>,
) -> Option<Broken> {
    let kind = Value::from(schema.kind.name());
    let failure =
        |detail: String| Some(Broken { error: report::invalid(path.to_string(), &kind, detail), is_failure: true });
    let program = match &rule.programs().rule {
        Ok(program) => program,
        Err(reason) => return failure(format!("rule compile error: compilation failed: {reason}")),
    };
    let old_self = match (rule.optional_old_self, old) {
        (true, Some(old)) => Some(CelValue::Opaque(Arc::new(OptionalValue::of(old.clone())))),
        (true, None) => Some(CelValue::Opaque(Arc::new(OptionalValue::none()))),
        (false, old) => old.cloned(),
    };
    let variables =
        || [("self", this.clone())].into_iter().chain(old_self.clone().map(|old_self| ("oldSelf", old_self)));
    match program.evaluate(variables()) {
        Ok(CelValue::Bool(true)) => None,
        Ok(CelValue::Bool(false)) => {
            let place = place_of_error(schema, rule, path);
            let detail = message(rule, variables());
            Some(Broken { error: broken(schema, rule, value, place, &detail), is_failure: false })
        }
        Ok(_) => failure(format!("cel expression must evaluate to a bool evaluating rule: {}", rule.title())),
        Err(error) => match error_text(&error) {
            text if text.starts_with("no such overload") => failure(format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.title()
            )),
            text => failure(format!("{text} evaluating rule: {}", rule.title())),
        },
    }
}

fn place_of_error(schema: &Schema, rule: &Rule, path: &Path<'_>) -> String {
    let mut place = path.to_string();
    if let Some(below) = rule.field_path.as_deref().and_then(|below| field_path(below, schema)) {
        if !place.is_empty() && !below.starts_with('[') {
            place.push('.');
        }
        place.push_str(&below);
    }
    place
}

fn broken(schema: &Schema, rule: &Rule, value: &Value, place: String, detail: &str) -> FieldError {
    // Objects and lists may be long and are not shown.
    let hidden = matches!(schema.kind, Type::Object | Type::Array);
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => report::forbidden(place, detail),
        Some("FieldValueRequired") => report::required(place, detail),
        Some("FieldValueDuplicate") if hidden => FieldError::new(FieldErrorKind::Duplicate, place, "Duplicate value"),
        Some("FieldValueDuplicate") => report::duplicate(place, value),
        _ if hidden => report::invalid_hidden(place, detail),
        _ => report::invalid(place, value, detail),
    }
}

fn message<'v>(rule: &Rule, variables: impl IntoIterator<Item = (&'v str, CelValue)>) -> String {
    let made = match &rule.programs().message {
        Some(Ok(program)) => match program.evaluate(variables) {
            Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    match made.filter(|text| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')) {
        Some(text) => text,
        None => match rule.message.as_deref() {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.title()),
        },
    }
}

/// Reads a rule's `fieldPath` (`.a.b`, `.a['b.c']`) and writes it as an error's path; `None` when the schema has no
/// such field.
pub(super) fn field_path(text: &str, schema: &Schema) -> Option<String> {
    let mut rest = text;
    let mut at = schema;
    let mut out = String::new();
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            let end = quoted.find("']")?;
            (quoted[..end].replace("\\'", "'").replace("\\\\", "\\"), &quoted[end + 2..])
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            (plain[..end].to_owned(), &plain[end..])
        };
        if name.is_empty() {
            return None;
        }
        if at.properties.is_empty() {
            at = at.additional_properties.as_deref()?;
            out.push_str(&format!("[{name}]"));
        } else {
            at = at.properties.get(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        }
        rest = after;
    }
    (!out.is_empty()).then_some(out)
}

/// What is wrong with a rule in a schema: the message of the compiler, for the rule and for its message expression.
pub(super) struct RuleErrors {
    pub(super) rule: Option<String>,
    pub(super) message_expression: Option<String>,
    pub(super) uses_old_self: bool,
}

/// Compiles a rule for a place in a schema and looks for names that do not exist there.
pub(super) fn check_rule(rule: &Rule, schema: &Schema, is_root: bool) -> RuleErrors {
    let programs = rule.programs();
    let whole = is_root.then(|| schema.with_object_meta());
    let shape = whole.as_ref().unwrap_or(schema);
    let problem = |program: &Result<Program, String>, source: &str, expected: Type, otherwise: &str| match program {
        Err(reason) => Some(format!("compilation failed: {reason}")),
        Ok(program) => Checker { source, shape, old_is_optional: rule.optional_old_self, errors: Vec::new() }.run(
            program.expression(),
            expected,
            otherwise,
        ),
    };
    let message_problem = || {
        let (program, source) = (programs.message.as_ref()?, rule.message_expression.as_deref()?);
        let reason = problem(program, source, Type::String, "must evaluate to a string")?;
        Some(format!("messageExpression {reason}"))
    };
    RuleErrors {
        rule: problem(&programs.rule, &rule.rule, Type::Boolean, "cel expression must evaluate to a bool"),
        message_expression: message_problem(),
        uses_old_self: programs.uses_old_self,
    }
}

/// Follows an expression through the schema as far as types are known without a type checker.
struct Checker<'s> {
    source: &'s str,
    shape: &'s Schema,
    old_is_optional: bool,
    errors: Vec<String>,
}

impl<'s> Checker<'s> {
    /// What is wrong with an expression whose value should be of a type, or else `otherwise` is said.
    fn run(mut self, expression: &Expression, expected: Type, otherwise: &str) -> Option<String> {
        let result = self.kind_of(expression, &mut Vec::new());
        if !self.errors.is_empty() {
            return Some(format!("compilation failed: {}", self.errors.join("\n")));
        }
        let misfit = result.is_some_and(|schema| !matches!(schema.kind, kind if kind == expected || kind == Type::Any));
        misfit.then(|| otherwise.to_owned())
    }

    fn report(&mut self, needle: &str, text: &str) {
        self.errors.push(compiler_message(self.source, place_of(self.source, needle), text));
    }

    /// The schema of an expression's value, where it is known.
    fn kind_of(
        &mut self,
        expression: &Expression,
        scope: &mut Vec<(String, Option<&'s Schema>)>,
    ) -> Option<&'s Schema> {
        match &expression.expr {
            Expr::Ident(name) => {
                if let Some((_, schema)) = scope.iter().rev().find(|(known, _)| known == name) {
                    return *schema;
                }
                match name.as_str() {
                    "self" => Some(self.shape),
                    "oldSelf" => (!self.old_is_optional).then_some(self.shape),
                    name if is_type_name(name) || name.starts_with('@') => None,
                    name => {
                        self.report(name, &format!("undeclared reference to '{name}' (in container '')"));
                        None
                    }
                }
            }
            Expr::Select(select) => {
                let operand = self.kind_of(&select.operand, scope)?;
                self.select(operand, &select.field)
            }
            Expr::Call(call) => {
                // `optional.of`, `base64.decode` and the like are names of functions, not fields of variables.
                let target = call.target.as_deref().filter(|target| !is_namespace(target));
                let of_target = target.and_then(|target| self.kind_of(target, scope));
                let of_args: Vec<_> = call.args.iter().map(|arg| self.kind_of(arg, scope)).collect();
                let list = of_target.or_else(|| of_args.first().copied().flatten());
                match call.func_name.as_str() {
                    operators::INDEX => {
                        list.and_then(|list| list.items.as_deref().or(list.additional_properties.as_deref()))
                    }
                    _ => None,
                }
            }
            Expr::Comprehension(loop_) => {
                let range = self.kind_of(&loop_.iter_range, scope);
                self.kind_of(&loop_.accu_init, scope);
                let depth = scope.len();
                let element = range.and_then(|range| range.items.as_deref());
                let (first, second) = match &loop_.iter_var2 {
                    None => (element, None),
                    Some(_) => {
                        (None, element.or_else(|| range.and_then(|range| range.additional_properties.as_deref())))
                    }
                };
                scope.push((loop_.iter_var.clone(), first));
                scope.extend(loop_.iter_var2.clone().map(|name| (name, second)));
                scope.push((loop_.accu_var.clone(), None));
                for part in [&loop_.loop_cond, &loop_.loop_step, &loop_.result] {
                    self.kind_of(part, scope);
                }
                scope.truncate(depth);
                None
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.kind_of(element, scope);
                }
                None
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.kind_of(&entry.key, scope);
                        self.kind_of(&entry.value, scope);
                    }
                }
                None
            }
            _ => None,
        }
    }

    fn select(&mut self, operand: &'s Schema, field: &str) -> Option<&'s Schema> {
        if let Some((_, found)) = operand.properties.iter().find(|(name, _)| escape(name) == field) {
            return Some(found);
        }
        if let Some(values) = &operand.additional_properties {
            return Some(values);
        }
        let meta = operand.embedded_resource && matches!(field, "apiVersion" | "kind" | "metadata");
        match operand.kind {
            Type::Any => None,
            _ if meta && field == "metadata" => Some(object_meta()),
            _ if meta => None,
            _ => {
                self.report(&format!(".{field}"), &format!("undefined field '{field}'"));
                None
            }
        }
    }
}

/// Names of types, which stand for themselves.
fn is_type_name(name: &str) -> bool {
    matches!(name, "bool" | "bytes" | "double" | "int" | "list" | "map" | "null_type" | "string" | "type" | "uint")
}

fn is_namespace(target: &Expression) -> bool {
    const NAMESPACES: [&str; 8] = ["optional", "base64", "sets", "math", "format", "ip", "jsonpatch", "cel"];
    matches!(&target.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
}

/// Calls `undeclared` for every variable of an expression that is not in scope.
pub(crate) fn walk_variables(expression: &Expression, declared: &mut Vec<&str>, undeclared: &mut dyn FnMut(&str)) {
    let any = super::meta::untyped();
    let names: Vec<String> = declared.iter().map(ToString::to_string).collect();
    let mut scope: Vec<(String, Option<&Schema>)> = names.into_iter().map(|name| (name, None)).collect();
    let mut checker = Checker { source: "", shape: &any, old_is_optional: true, errors: Vec::new() };
    checker.kind_of(expression, &mut scope);
    for error in checker.errors {
        if let Some(name) = error.split('\'').nth(1) {
            undeclared(name);
        }
    }
}

/// Where in its source an expression's part stands: the first place where it is written.
pub(crate) fn place_of(source: &str, needle: &str) -> usize {
    let boundary = |at: usize| !source[at + needle.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    source.match_indices(needle).map(|(at, _)| at).find(|at| boundary(*at)).unwrap_or_default()
}

/// An error of the compiler as cel-go prints it, with the line and a mark below the place.
pub(crate) fn compiler_message(source: &str, place: usize, text: &str) -> String {
    let before = &source[..place];
    let line_number = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = source[start..].lines().next().unwrap_or_default();
    let column = source[start..place].chars().count();
    format!("ERROR: <input>:{line_number}:{}: {text}\n | {line}\n | {}^", column + 1, ".".repeat(column))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: &Value) -> Schema {
        Schema::from_json(value).expect("parses")
    }

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn spec(node: &Value) -> Schema {
        schema(&json!({"type": "object", "properties": {"spec": node}}))
    }

    #[test]
    fn messages_reasons_and_places() {
        let schema =
            spec(&json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.a <= self.b"},
                {"rule": "self.a < 100", "message": "a too big", "fieldPath": ".a", "reason": "FieldValueForbidden"},
                {"rule": "self.a != 7", "messageExpression": "'a is ' + string(self.a)"}]}));
        let errors = |spec: Value| texts(&schema.validate(&json!({"spec": spec})));
        assert_eq!(errors(json!({"a": 5, "b": 3})), ["spec: Invalid value: failed rule: self.a <= self.b"]);
        assert_eq!(errors(json!({"a": 500, "b": 500})), ["spec.a: Forbidden: a too big"]);
        assert_eq!(errors(json!({"a": 7, "b": 8})), ["spec: Invalid value: a is 7"]);
        assert_eq!(
            errors(json!({"b": 8}))[0],
            r#"spec: Invalid value: "object": no such key: a evaluating rule: self.a <= self.b"#
        );
        assert_eq!(errors(json!({"a": 1, "b": 2})), [""; 0]);
    }

    #[test]
    fn transition_rules_need_an_old_value() {
        let schema = spec(&json!({"type": "string", "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "immutable"}]}));
        assert!(schema.validate(&json!({"spec": "a"})).is_empty());
        assert!(schema.validate_update(&json!({}), &json!({"spec": "b"})).is_empty());
        assert!(schema.validate_update(&json!({"spec": "b"}), &json!({"spec": "b"})).is_empty());
        assert_eq!(
            texts(&schema.validate_update(&json!({"spec": "a"}), &json!({"spec": "b"}))),
            [r#"spec: Invalid value: "b": immutable"#]
        );
    }

    #[test]
    fn optional_old_self_runs_on_creation() {
        let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 0", "message": "starts at zero",
             "optionalOldSelf": true}]}));
        assert!(schema.validate(&json!({"spec": 0})).is_empty());
        assert_eq!(texts(&schema.validate(&json!({"spec": 2}))), [r"spec: Invalid value: 2: starts at zero"]);
        assert!(schema.validate_update(&json!({"spec": 1}), &json!({"spec": 2})).is_empty());
        assert_eq!(schema.validate_update(&json!({"spec": 3}), &json!({"spec": 2})).len(), 1);
    }

    #[test]
    fn broken_rules_on_unchanged_values_are_tolerated() {
        let schema = spec(&json!({"type": "object", "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]}, "b": {"type": "string"}}}));
        let (old, new) = (json!({"spec": {"a": 1, "b": "x"}}), json!({"spec": {"a": 1, "b": "y"}}));
        assert!(schema.validate_update(&old, &new).is_empty());
        assert_eq!(schema.validate_update(&old, &json!({"spec": {"a": 2}})).len(), 1);
    }

    #[test]
    fn elements_of_map_lists_meet_their_old_selves() {
        let schema =
            spec(&json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"},
                "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}));
        let old = json!({"spec": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]});
        assert!(schema.validate_update(&old, &json!({"spec": [{"k": "b", "v": 5}, {"k": "a", "v": 2}]})).is_empty());
        let errors = schema.validate_update(&old, &json!({"spec": [{"k": "b", "v": 4}]}));
        assert_eq!(texts(&errors), ["spec[0].v: Invalid value: 4: failed rule: self >= oldSelf"]);
    }

    #[test]
    fn rules_are_skipped_after_blocking_errors() {
        let schema = spec(&json!({"type": "string", "maxLength": 1, "x-kubernetes-validations": [{"rule": "false"}]}));
        let errors = texts(&schema.validate(&json!({"spec": "abc"})));
        assert_eq!(errors.len(), 2);
        assert!(errors[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"));
    }

    #[test]
    fn the_compiler_points_at_the_place() {
        let node = schema(&json!({"type": "object", "properties": {"a": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}}, "p": {}}}));
        let check = |text: &str| {
            check_rule(&Rule { rule: text.to_owned(), ..Rule::default() }, &node, false).rule.unwrap_or_default()
        };
        assert_eq!(
            check("self.missing > 1"),
            "compilation failed: ERROR: <input>:1:5: undefined field 'missing'\n | self.missing > 1\n | ....^"
        );
        assert_eq!(
            check("slef.a > 1"),
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'slef' (in container '')\n | slef.a > 1\n | ^"
        );
        assert!(check("self.l.all(e, e.y == '')").contains("undefined field 'y'"));
        for good in [
            "self.a > 1 && self.l.all(e, e.x != '')",
            "self.m.any == 'x' && self.m['k'] == 'y'",
            "self.p.whatever == 1",
            "has(self.l) && self.l[0].x == 'a'",
            "type(self.a) == int",
            "self.?a.orValue(1) == optional.of(2).value()",
            "self.l.map(e, e.x).exists(x, x in ['a', 'b'])",
        ] {
            assert_eq!(check(good), "", "{good}");
        }
        assert!(check("self.a >").starts_with("compilation failed: ERROR: <input>:1:"));
    }

    #[test]
    fn field_paths_are_read() {
        let node = schema(&json!({"type": "object", "properties": {
            "a.b": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "o": {"type": "object", "properties": {"x": {"type": "string"}}}}}));
        for (text, expected) in [
            (".o.x", Some("o.x")),
            ("['a.b']", Some("a.b")),
            (".m['k']", Some("m[k]")),
            (".m.k", Some("m[k]")),
            (".o.y", None),
            ("o", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(field_path(text, &node).as_deref(), expected, "{text}");
        }
    }
}
