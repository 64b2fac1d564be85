//! Filters as they are sent: of queries, and of writes that ask for a document to be as expected.

use reveille_core::document::filter::{Filter, FilterError, check_count};
use serde_json::Value;

use crate::http::fields::FieldError;
use crate::http::known::check_fields_of;

const FILTER_FIELDS: [&str; 3] = ["field", "op", "value"];

/// Reads `[{"field","op","value"}]`, a field of this name; none if it is left out.
pub(super) fn parse_filters(name: &str, value: Option<&Value>) -> Result<Vec<Filter>, FieldError> {
    let list = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => {
            return Err(format!(
                "`{name}` must be an array of filters like {}",
                r#"{"field":"status","op":"==","value":"open"}"#
            )
            .into());
        }
    };
    let filters = list.iter().enumerate().map(|(at, filter)| {
        parse_filter(filter, &format!("{name}[{at}]")).map_err(|FieldError(why)| why)
    });
    let filters: Vec<Filter> = filters.collect::<Result<_, String>>()?;
    check_count(&filters).map_err(|error| format!("`{name}`: {error}"))?;
    Ok(filters)
}

fn parse_filter(filter: &Value, name: &str) -> Result<Filter, FieldError> {
    let Value::Object(object) = filter else {
        return Err(format!("`{name}` must be an object with `field`, `op` and `value`").into());
    };
    check_fields_of(name, object, &FILTER_FIELDS)?;
    let text = |part: &str| match object.get(part) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(FieldError(format!("`{name}.{part}` must be a string"))),
        None => Err(FieldError(format!("`{name}` has no `{part}`"))),
    };
    let (field, op) = (text("field")?, text("op")?);
    // Null is a value like others: what is compared with it must be said.
    let value = object.get("value").ok_or_else(|| format!("`{name}` has no `value`"))?;
    Filter::new(field, op, value.clone()).map_err(|error: FilterError| {
        let sentence = format!("`{name}`: {error}");
        sentence.into()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_part_of_a_filter_that_is_wrong_is_named() {
        let check = |value: Value, said: &str| {
            let error = parse_filters("ifMatch", Some(&value)).unwrap_err().0;
            assert!(error.contains(said), "{error}");
        };
        check(json!({}), "`ifMatch` must be an array of filters");
        check(json!([1]), "`ifMatch[0]` must be an object");
        check(json!([{"field": "a", "op": "=="}]), "`ifMatch[0]` has no `value`");
        check(json!([{"field": "a", "value": 1}]), "`ifMatch[0]` has no `op`");
        check(json!([{"op": "==", "value": 1}]), "`ifMatch[0]` has no `field`");
        check(json!([{"field": 1, "op": "==", "value": 1}]), "`ifMatch[0].field` must be a string");
        check(json!([{"feild": 1}]), "did you mean `field`?");
        check(json!([{"field": "a", "op": "=", "value": 1}]), "there is no operator `=`");
        let many = vec![json!({"field": "a", "op": "==", "value": 1}); 33];
        check(json!(many), "at most 32 filters");
    }

    #[test]
    fn all_operators_are_read_and_null_is_a_value() {
        let ops = ["==", "!=", ">", ">=", "<", "<=", "array-contains", "contains"];
        let filters: Vec<_> =
            ops.iter().map(|op| json!({"field": "a.b", "op": op, "value": null})).collect();
        assert_eq!(parse_filters("filters", Some(&json!(filters))).map(|it| it.len()), Ok(8));
        for op in ["in", "not-in"] {
            let filter = json!([{"field": "a", "op": op, "value": [1]}]);
            assert!(parse_filters("filters", Some(&filter)).is_ok());
        }
        assert_eq!(parse_filters("filters", None), Ok(Vec::new()));
        assert_eq!(parse_filters("filters", Some(&Value::Null)), Ok(Vec::new()));
    }
}
