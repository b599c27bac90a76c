//! Field selectors: `metadata.name=a,status.phase!=Running`.

use std::fmt;

use super::SelectorError;

/// How a [`FieldRequirement`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field as the client wrote it: `spec.nodeName`.
    pub path: String,
    /// How it compares.
    pub operator: FieldOperator,
    /// What it compares with; a field that an object lacks has the empty value.
    pub value: String,
}

/// A conjunction of conditions on fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads the query-string form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let requirements = terms.into_iter().filter(|term| !term.is_empty()).map(|term| parse_term(text, term));
        Ok(Self { requirements: requirements.collect::<Result<_, _>>()? })
    }

    /// Refuses fields that a kind with selectable fields of its own (or any custom resource) does not support.
    pub fn check(&self, supported: &[&str]) -> Result<(), SelectorError> {
        match self.first_unsupported(supported) {
            Some(path) => Err(SelectorError::UnsupportedField(path.to_owned())),
            None => Ok(()),
        }
    }

    /// The same for built-in kinds that know nothing but name and namespace; kube-apiserver words that differently.
    pub fn check_metadata_only(&self) -> Result<(), SelectorError> {
        match self.first_unsupported(&["metadata.name", "metadata.namespace"]) {
            Some(path) => Err(SelectorError::UnknownField(path.to_owned())),
            None => Ok(()),
        }
    }

    /// Whether fields found by `lookup` satisfy every requirement; `lookup` answers `""` for what an object lacks.
    pub fn matches<'f>(&self, lookup: impl Fn(&str) -> std::borrow::Cow<'f, str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let equal = lookup(&requirement.path) == requirement.value;
            equal == (requirement.operator == FieldOperator::Equals)
        })
    }

    /// The one value that the field must have, if the selector says so: the way into a single-object watch or an index.
    pub fn required_value(&self, path: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| r.path == path && r.operator == FieldOperator::Equals);
        requirement.map(|requirement| requirement.value.as_str())
    }

    /// True when no object can be left out.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, sorted by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    fn first_unsupported(&self, supported: &[&str]) -> Option<&str> {
        self.requirements.iter().map(|r| r.path.as_str()).find(|path| !supported.contains(path))
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { path, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if *operator == FieldOperator::Equals { "=" } else { "!=" };
            write!(f, "{comma}{path}{operator}{}", escape_value(value))?;
        }
        Ok(())
    }
}

/// `value` with a backslash before everything that has a meaning in a field selector.
pub fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Splits at commas that no backslash protects.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_term(selector: &str, term: &str) -> Result<FieldRequirement, SelectorError> {
    // The first operator splits: a path cannot hold one, and there is no way to escape it there.
    for (index, _) in term.char_indices() {
        let (path, rest) = term.split_at(index);
        for (text, operator) in
            [("!=", FieldOperator::NotEquals), ("==", FieldOperator::Equals), ("=", FieldOperator::Equals)]
        {
            if let Some(value) = rest.strip_prefix(text) {
                return Ok(FieldRequirement { path: path.to_owned(), operator, value: unescape_value(value)? });
            }
        }
    }
    Err(SelectorError::NoOperator { selector: selector.to_owned(), term: term.to_owned() })
}

fn unescape_value(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(SelectorError::InvalidEscape(format!("\\{other}"))),
                None => return Err(SelectorError::InvalidEscape("\\".to_owned())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> FieldSelector {
        FieldSelector::parse(text).expect("the selector is legal")
    }

    fn refusal(text: &str) -> String {
        FieldSelector::parse(text).expect_err("the selector is wrong").to_string()
    }

    #[test]
    fn reads_terms_sorted_and_unescaped() {
        let selector = parse(r"b!=2,,a==1,c=x\,y\=z\\");
        let terms: Vec<_> = selector.requirements().iter().map(|r| (&*r.path, r.operator, &*r.value)).collect();
        assert_eq!(
            terms,
            [
                ("a", FieldOperator::Equals, "1"),
                ("b", FieldOperator::NotEquals, "2"),
                ("c", FieldOperator::Equals, r"x,y=z\")
            ]
        );
        assert_eq!(selector.to_string(), r"a=1,b!=2,c=x\,y\=z\\");
        assert!(parse("").is_everything() && parse(",").is_everything());
    }

    #[test]
    fn matches_and_names_the_exact_value() {
        let selector = parse("metadata.name=a,status.phase!=Failed");
        assert_eq!(selector.required_value("metadata.name"), Some("a"));
        assert_eq!(selector.required_value("status.phase"), None);
        assert!(selector.matches(|path| if path == "metadata.name" { "a" } else { "" }.into()));
        assert!(!selector.matches(|path| if path == "metadata.name" { "a" } else { "Failed" }.into()));
        assert!(!selector.matches(|_| "".into()));
    }

    #[test]
    fn refuses_with_kube_apiservers_words() {
        assert_eq!(refusal("a=1,b"), "invalid selector: 'a=1,b'; can't understand 'b'");
        assert_eq!(refusal("a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(refusal(r"a=\b"), r"invalid field selector: invalid escape sequence: \b");
        assert_eq!(refusal(r"a=b\"), r"invalid field selector: invalid escape sequence: \");
        let check = parse("spec.x=1,metadata.name=a").check(&["metadata.name"]);
        assert_eq!(check.map_err(|e| e.to_string()), Err("field label not supported: spec.x".to_owned()));
        let check = parse("spec.x=1").check_metadata_only();
        assert_eq!(
            check.map_err(|e| e.to_string()),
            Err("\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".to_owned())
        );
        assert_eq!(parse("metadata.name=a,metadata.namespace=b").check_metadata_only(), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn values_survive_escaping(value in ".*") {
            let selector = parse(&format!("a={}", escape_value(&value)));
            proptest::prop_assert_eq!(selector.required_value("a"), Some(value.as_str()));
        }

        #[test]
        fn never_panics(text in ".*") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
