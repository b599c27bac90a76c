//! A virtual machine with everything that it refers to filled in. Pure functions.
//!
//! Instance types and preferences are what there is to fill in. They are not supported yet, so a machine without them is shown
//! as it is, and one with them is refused.

use ferrovirt_api::{VirtualMachine, decode};
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use serde_json::{Value, json};

/// Refuses a machine that cannot be expanded; any other is its own expansion.
pub(super) fn check(vm: &Value) -> Result<(), String> {
    for field in ["instancetype", "preference"] {
        if !vm["spec"][field].is_null() {
            return Err(format!(
                "spec.{field} is not supported yet: write what it stands for into spec.template.spec instead"
            ));
        }
    }
    Ok(())
}

/// The machine in a body, expanded. It must be one, and of the namespace in the path.
pub(super) fn expand_given(body: &[u8], namespace: &str) -> ApiResult<Value> {
    let mut vm: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("Can not unmarshal Request body to struct, error: {error}")))?;
    let invalid = |why: String| {
        ApiError::bad_request("Object is not a valid VirtualMachine").with_causes(vec![json!({"message": why})])
    };
    if !vm.is_object() {
        return Err(invalid("the body must be an object".to_owned()));
    }
    decode::<VirtualMachine>(&vm).map_err(|error| invalid(error.to_string()))?;
    match vm["metadata"]["namespace"].as_str().unwrap_or_default() {
        "" => vm["metadata"]["namespace"] = namespace.into(),
        other if other != namespace => {
            return Err(ApiError::bad_request(format!("VM namespace must be empty or {namespace}")));
        }
        _ => {}
    }
    check(&vm).map_err(ApiError::bad_request)?;
    Ok(vm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(vm: &Value) -> Result<Value, (u16, String)> {
        expand_given(vm.to_string().as_bytes(), "a")
            .map_err(|error| (error.code().as_u16(), error.message().to_owned()))
    }

    fn machine(namespace: &str, more: &Value) -> Value {
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "b", "namespace": namespace},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
        });
        for (name, value) in more.as_object().unwrap() {
            vm["spec"][name] = value.clone();
        }
        vm
    }

    #[test]
    fn a_machine_that_refers_to_nothing_is_itself() {
        assert_eq!(given(&machine("a", &json!({}))), Ok(machine("a", &json!({}))));
        assert_eq!(given(&machine("", &json!({}))), Ok(machine("a", &json!({}))));
    }

    #[test]
    fn what_is_no_machine_of_the_namespace_is_refused() {
        let wrong = (400, "VM namespace must be empty or a".to_owned());
        assert_eq!(given(&machine("b", &json!({}))), Err(wrong));
        let invalid = (400, "Object is not a valid VirtualMachine".to_owned());
        assert_eq!(given(&machine("a", &json!({"running": "maybe"}))), Err(invalid.clone()));
        assert_eq!(given(&json!([])), Err(invalid));
        assert_eq!(expand_given(b"{", "a").unwrap_err().code(), 400);
    }

    #[test]
    fn instance_types_are_not_ignored() {
        let (code, message) = given(&machine("a", &json!({"instancetype": {"name": "u1.small"}}))).unwrap_err();
        assert_eq!(code, 400);
        assert!(message.starts_with("spec.instancetype is not supported yet"), "{message}");
        assert_eq!(given(&machine("a", &json!({"preference": {"name": "fedora"}}))).unwrap_err().0, 400);
    }
}
