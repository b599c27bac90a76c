//! Go's `%q`, for messages that must read as kube-apiserver's.

pub(super) use ferrovirt_machinery::quote::go_quote as quoted;

/// Quotes a list as Go's `%q` does for `[]string`: `["a" "b"]`.
pub(super) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_spaces_and_no_commas() {
        assert_eq!(quoted_list(&["a", "b\"c"]), r#"["a" "b\"c"]"#);
        assert_eq!(quoted_list::<&str>(&[]), "[]");
    }
}
