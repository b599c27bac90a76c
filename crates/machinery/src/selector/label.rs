//! Label selectors: `app=web,tier in (a,b),!legacy` and the `matchLabels`/`matchExpressions` object.

use std::fmt;

use serde_json::Value;

use super::SelectorError;
use crate::error::{FieldError, FieldErrorKind};
use crate::names;

/// How a [`LabelRequirement`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `key=value`
    Equals,
    /// `key==value`
    DoubleEquals,
    /// `key!=value`; a missing key passes.
    NotEquals,
    /// `key in (a,b)`
    In,
    /// `key notin (a,b)`; a missing key passes.
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key>1`, both sides integers.
    GreaterThan,
    /// `key<1`, both sides integers.
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How it compares.
    pub operator: LabelOperator,
    /// What it compares with, sorted.
    pub values: Vec<String>,
}

/// A conjunction of conditions on labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    /// An absent `LabelSelector` object selects nothing, unlike an empty one.
    nothing: bool,
}

impl LabelSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects no object.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Reads the query-string form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Parser::new(text).selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Reads a `LabelSelector` object. `null` selects nothing, `{}` everything: a caller whose field defaults to `{}`
    /// applies that default first.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        let object = match object {
            Value::Null => return Ok(Self::nothing()),
            Value::Object(object) => object,
            _ => return Err(SelectorError::NotASelector("label selector must be an object".to_owned())),
        };
        let mut requirements = Vec::new();
        for (key, value) in object.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let Some(value) = value.as_str() else {
                return Err(SelectorError::NotASelector(format!("matchLabels[{key}] must be a string")));
            };
            requirements.push(requirement(key.clone(), LabelOperator::Equals, vec![value.to_owned()])?);
        }
        for expression in object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Whether labels found by `lookup` satisfy every requirement.
    pub fn matches<'l>(&self, lookup: impl Fn(&str) -> Option<&'l str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
    }

    /// Whether the labels of a whole object satisfy every requirement.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// True when no object can be left out.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// The one value that `key` must have, if the selector says so: the way into an index.
    pub fn required_value(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In, [only]) => Some(only),
            _ => None,
        }
    }
}

impl LabelRequirement {
    fn matches(&self, value: Option<&str>) -> bool {
        use LabelOperator as Op;
        match (self.operator, value) {
            (Op::Equals | Op::DoubleEquals | Op::In, value) => value.is_some_and(|value| self.has(value)),
            (Op::NotEquals | Op::NotIn, value) => !value.is_some_and(|value| self.has(value)),
            (Op::Exists, value) => value.is_some(),
            (Op::DoesNotExist, value) => value.is_none(),
            (Op::GreaterThan, Some(value)) => self.compare(value, |label, bound| label > bound),
            (Op::LessThan, Some(value)) => self.compare(value, |label, bound| label < bound),
            (Op::GreaterThan | Op::LessThan, None) => false,
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|wanted| wanted == value)
    }

    fn compare(&self, value: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
        match (value.parse(), self.values.first().map(|bound| bound.parse())) {
            (Ok(value), Some(Ok(bound))) => holds(value, bound),
            _ => false,
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// Checks a `LabelSelector` object that is part of another object (a Deployment's selector, a webhook's).
pub fn validate_label_selector(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = names::validate_labels(&selector["matchLabels"], &format!("{path}.matchLabels"));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values: Vec<&str> = strings(&expression["values"]);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => errors.push(names::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(names::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(names::invalid(format!("{path}.operator"), other, "not a valid selector operator")),
        }
        let key = expression["key"].as_str().unwrap_or_default();
        errors.extend(names::label_key(key).into_iter().map(|m| names::invalid(format!("{path}.key"), key, m)));
        for (index, value) in values.into_iter().enumerate() {
            let path = format!("{path}.values[{index}]");
            errors.extend(names::label_value(value).into_iter().map(|m| names::invalid(path.as_str(), value, m)));
        }
    }
    errors
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn from_expression(expression: &Value) -> Result<LabelRequirement, SelectorError> {
    let operator = match expression["operator"].as_str().unwrap_or_default() {
        "In" => LabelOperator::In,
        "NotIn" => LabelOperator::NotIn,
        "Exists" => LabelOperator::Exists,
        "DoesNotExist" => LabelOperator::DoesNotExist,
        other => return Err(SelectorError::UnknownOperator(other.to_owned())),
    };
    let key = expression["key"].as_str().unwrap_or_default();
    let values = strings(&expression["values"]).into_iter().map(str::to_owned).collect();
    requirement(key.to_owned(), operator, values)
}

/// Builds a requirement and checks what it holds.
fn requirement(
    key: String,
    operator: LabelOperator,
    mut values: Vec<String>,
) -> Result<LabelRequirement, SelectorError> {
    let mut errors = Vec::new();
    errors.extend(key_error(&key, "key"));
    match operator {
        LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
            errors.push(values_error("null", "for 'in', 'notin' operators, values set can't be empty"));
        }
        LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
            let list = serde_json::to_string(&values).unwrap_or_default();
            errors.push(values_error(&list, "values set must be empty for exists and does not exist"));
        }
        LabelOperator::GreaterThan | LabelOperator::LessThan => {
            for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(names::invalid(format!("values[{index}]"), value, detail));
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let messages = names::label_value(value);
        if !messages.is_empty() {
            errors.push(names::invalid(format!("values[{index}][{key}]"), value, messages.join("; ")));
        }
    }
    if !errors.is_empty() {
        return Err(SelectorError::Invalid(errors));
    }
    values.sort();
    Ok(LabelRequirement { key, operator, values })
}

fn key_error(key: &str, path: &str) -> Option<FieldError> {
    let messages = names::label_key(key);
    (!messages.is_empty()).then(|| names::invalid(path, key, messages.join("; ")))
}

fn values_error(list: &str, detail: &str) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, "values", format!("Invalid value: {list}: {detail}"))
}

/// A token and the text that error messages show for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Error,
    End,
    CloseParenthesis,
    OpenParenthesis,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    NotEquals,
    GreaterThan,
    LessThan,
    /// `in` and `notin` are operators after a key and ordinary words everywhere else.
    In,
    NotIn,
    Word,
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::CloseParenthesis,
        "(" => Token::OpenParenthesis,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        "!=" => Token::NotEquals,
        ">" => Token::GreaterThan,
        "<" => Token::LessThan,
        _ => return None,
    })
}

fn is_symbol_character(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Cuts the next token off `rest`. A NUL byte ends the input, as it does for kube-apiserver.
fn next_token(rest: &str) -> (Token, String, &str) {
    let rest = rest.trim_start_matches(is_space);
    let Some(first) = rest.chars().next().filter(|first| *first != '\0') else {
        return (Token::End, String::new(), "");
    };
    if is_symbol_character(first) {
        return next_symbol(rest);
    }
    let end = rest.find(|c| c == '\0' || is_space(c) || is_symbol_character(c)).unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    let rest = if rest.starts_with('\0') { "" } else { rest };
    let token = match word {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Word,
    };
    (token, word.to_owned(), rest)
}

/// The longest operator at the start of `rest`; every single character in the set is one, so there always is one.
fn next_symbol(rest: &str) -> (Token, String, &str) {
    for length in [2, 1] {
        if let Some((text, rest)) = rest.split_at_checked(length)
            && let Some(token) = symbol(text)
        {
            return (token, text.to_owned(), rest);
        }
    }
    (Token::Error, rest.to_owned(), "")
}

/// Recursive descent over the token list; the grammar and the messages are kube-apiserver's.
struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        loop {
            let (token, literal, remaining) = next_token(rest);
            tokens.push((token, literal));
            if token == Token::End {
                return Self { tokens, position: 0 };
            }
            rest = remaining;
        }
    }

    /// The token at the position, `in` and `notin` read as words; past the end it stays [`Token::End`].
    fn peek(&self) -> (Token, String) {
        match self.operator_token() {
            (Token::In | Token::NotIn, literal) => (Token::Word, literal),
            other => other,
        }
    }

    fn operator_token(&self) -> (Token, String) {
        self.tokens.get(self.position).cloned().unwrap_or((Token::End, String::new()))
    }

    fn take(&mut self) -> (Token, String) {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<LabelRequirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Word | Token::Not, _) => {
                    let requirement = self.requirement();
                    requirements.push(requirement.map_err(|error| SelectorError::Requirement(Box::new(error)))?);
                    if !self.separator()? {
                        return Ok(requirements);
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, found) => return Err(unexpected(found, "!, identifier, or 'end of string'")),
            }
        }
    }

    /// What follows a requirement: the end, or a comma and another requirement.
    fn separator(&mut self) -> Result<bool, SelectorError> {
        match self.take() {
            (Token::End, _) => Ok(false),
            (Token::Comma, _) => match self.peek() {
                (Token::Word | Token::Not, _) => Ok(true),
                (_, found) => Err(unexpected(found, "identifier after ','")),
            },
            (_, found) => Err(unexpected(found, "',' or 'end of string'")),
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Word {
            return Err(unexpected(key, "identifier"));
        }
        // Go reports a bad key here without a path, which prints as `<nil>`.
        if let Some(error) = key_error(&key, "") {
            return Err(SelectorError::Invalid(vec![error]));
        }
        // `!key` is complete: in `!key=value` the operator is what is wrong, and the caller says so.
        if negated {
            return requirement(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return requirement(key, LabelOperator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.set()?,
            _ => vec![self.exact_value()?],
        };
        requirement(key, operator, values)
    }

    fn operator(&mut self) -> Result<LabelOperator, SelectorError> {
        let (token, literal) = self.operator_token();
        self.position += 1;
        Ok(match token {
            Token::In => LabelOperator::In,
            Token::NotIn => LabelOperator::NotIn,
            Token::Equals => LabelOperator::Equals,
            Token::DoubleEquals => LabelOperator::DoubleEquals,
            Token::NotEquals => LabelOperator::NotEquals,
            Token::GreaterThan => LabelOperator::GreaterThan,
            Token::LessThan => LabelOperator::LessThan,
            _ => return Err(unexpected(literal, "in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Token::Word, value) => Ok(value),
            (_, found) => Err(unexpected(found, "identifier")),
        }
    }

    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        match self.take() {
            (Token::OpenParenthesis, _) => {}
            (_, found) => return Err(SelectorError::NoSet { found }),
        }
        match self.peek() {
            (Token::Word | Token::Comma, _) => self.set_members(),
            (Token::CloseParenthesis, _) => {
                self.position += 1;
                Ok(vec![String::new()])
            }
            (_, found) => Err(unexpected(found, "',', ')' or identifier")),
        }
    }

    /// The members up to and including `)`. Between two commas, and beside a parenthesis, stands the empty value.
    fn set_members(&mut self) -> Result<Vec<String>, SelectorError> {
        let mut members: Vec<String> = Vec::new();
        loop {
            match self.take() {
                (Token::Word, member) => {
                    insert(&mut members, member);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::CloseParenthesis, _) => break,
                        (_, found) => return Err(unexpected(found, "',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let next = self.peek().0;
                    if members.is_empty() || matches!(next, Token::CloseParenthesis | Token::Comma) {
                        insert(&mut members, String::new());
                    }
                    if next == Token::CloseParenthesis {
                        break;
                    }
                }
                (_, found) => return Err(unexpected(found, "',', or identifier")),
            }
        }
        self.position += 1;
        Ok(members)
    }
}

fn insert(members: &mut Vec<String>, member: String) {
    if !members.contains(&member) {
        members.push(member);
    }
}

fn unexpected(found: String, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found, expected }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("the selector is legal");
        selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    fn refusal(selector: &str) -> String {
        LabelSelector::parse(selector).expect_err("the selector is wrong").to_string()
    }

    #[test]
    fn selects_by_every_operator() {
        let web = [("app", "web"), ("tier", "2"), ("legacy", "")];
        for selector in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "other!=x",
            "app in (db,web)",
            "app notin (db)",
            "!other",
            "tier>1",
            "tier<3",
            "legacy=",
            "legacy in ()",
            "legacy in (x,)",
            " app = web , tier ",
            "other notin (a)",
        ] {
            assert!(matches(selector, &web), "{selector}");
        }
        for selector in ["app=db", "app!=web", "other", "!app", "app notin (web)", "tier>2", "tier<2", "app>1", "o=x"] {
            assert!(!matches(selector, &web), "{selector}");
        }
    }

    #[test]
    fn keywords_are_words_where_an_operator_cannot_stand() {
        assert!(matches("in in (in, notin)", &[("in", "notin")]));
        assert!(matches("notin=in", &[("notin", "in")]));
    }

    #[test]
    fn prints_sorted_by_key() {
        let text = |selector: &str| LabelSelector::parse(selector).expect("legal").to_string();
        assert_eq!(text("z,a in (c,b,b),!m,x!=1,g>5"), "a in (b,c),g>5,!m,x!=1,z");
        assert_eq!(text("x in (foo,,baz),y,z notin ()"), "x in (,baz,foo),y,z notin ()");
    }

    #[test]
    fn refuses_with_kube_apiservers_words() {
        assert_eq!(refusal("a b"), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        assert_eq!(refusal("a,"), "found '', expected: identifier after ','");
        assert_eq!(refusal(",a"), "found ',', expected: !, identifier, or 'end of string'");
        assert_eq!(refusal("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert_eq!(refusal("a=b=c"), "found '=', expected: ',' or 'end of string'");
        assert_eq!(refusal("!a=b"), "found '=', expected: ',' or 'end of string'");
        assert_eq!(refusal("a==="), "unable to parse requirement: found '=', expected: identifier");
        assert_eq!(refusal("!"), "unable to parse requirement: found '', expected: identifier");
        assert_eq!(refusal("a in b"), "unable to parse requirement: found 'b' expected: '('");
        assert_eq!(refusal("a in (="), "unable to parse requirement: found '=', expected: ',', ')' or identifier");
        assert_eq!(refusal("a in (b"), "unable to parse requirement: found '', expected: ',' or ')'");
        assert_eq!(refusal("a in (b,"), "unable to parse requirement: found '', expected: ',', or identifier");
    }

    #[test]
    fn refuses_illegal_keys_and_values() {
        assert_eq!(
            refusal("-a=b"),
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        );
        assert_eq!(
            refusal("a=b/c"),
            "unable to parse requirement: values[0][a]: Invalid value: \"b/c\": a valid label must be an empty string \
             or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        );
        assert_eq!(
            refusal("a>b"),
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be \
             an integer"
        );
    }

    #[test]
    fn objects_select_like_their_text() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "legacy", "operator": "DoesNotExist"},
            ],
        }));
        assert_eq!(selector.map(|selector| selector.to_string()), Ok("app=web,!legacy,tier in (a,b)".to_owned()));
        assert!(LabelSelector::from_object(&json!({})).is_ok_and(|selector| selector.is_everything()));
        let nothing = LabelSelector::from_object(&Value::Null).expect("null is a selector");
        assert!(!nothing.is_everything() && !nothing.matches(|_| Some("x")));
        let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "in"}]}));
        assert_eq!(error.map_err(|e| e.to_string()), Err("\"in\" is not a valid label selector operator".to_owned()));
        let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]}));
        assert_eq!(
            error.map_err(|e| e.to_string()),
            Err("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned())
        );
    }

    #[test]
    fn finds_the_value_that_an_index_can_use() {
        let selector = LabelSelector::parse("node in (a),app=web,x!=y").expect("legal");
        assert_eq!(selector.required_value("node"), Some("a"));
        assert_eq!(selector.required_value("app"), Some("web"));
        assert_eq!(selector.required_value("x"), None);
    }

    #[test]
    fn validates_selectors_inside_objects() {
        let errors = validate_label_selector(
            &json!({"matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "gt"},
            ]}),
            "spec.selector",
        );
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 5);
        assert_eq!(
            texts[0],
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        );
        assert_eq!(
            texts[1],
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or \
             'DoesNotExist'"
        );
        assert_eq!(
            texts[2],
            "spec.selector.matchExpressions[2].operator: Invalid value: \"gt\": not a valid selector operator"
        );
        assert_eq!(texts[3], "spec.selector.matchExpressions[2].key: Invalid value: \"\": name part must be non-empty");
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_prints_what_it_reads(text in "[ab1!=<>(), \\x00inot./-]{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                proptest::prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}
