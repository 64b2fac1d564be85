//! What a condition looks at, as far as its text says. In doubt it looks.

use super::super::expression::{Expression, Operator};

/// Fields of a document that are the moment of a write.
const TIMES: [&str; 2] = ["createdAt", "updatedAt"];

/// Whether it may look at the moment of the commit.
pub(super) fn reads_time(expression: &Expression) -> bool {
    match expression {
        Expression::Variable(_) => true,
        Expression::Field(of, name) if is_event(of) => matches!(&**name, "timestamp" | "document"),
        Expression::Field(of, name) if is_document(of) => TIMES.contains(&&**name),
        Expression::HasField(of, _) if is_event(of) || is_document(of) => false,
        Expression::Index(of, name) if is_event(of) || is_document(of) => match &**name {
            Expression::Text(name) if is_document(of) => TIMES.contains(&&**name),
            _ => true,
        },
        // Whether there is one, and which fields it has, is the same at every moment.
        Expression::Binary(Operator::Equal | Operator::NotEqual, left, right)
            if is_document(left) && is_null(right) || is_null(left) && is_document(right) =>
        {
            false
        }
        Expression::Binary(Operator::In, name, of) if is_document(of) => reads_time(name),
        Expression::Quantifier(_, of, body) if is_document(of) => reads_time(body),
        other => any_part(other, reads_time),
    }
}

/// Whether it may look at `event.changed`.
pub(super) fn reads_changed(expression: &Expression) -> bool {
    match expression {
        Expression::Variable(_) => true,
        Expression::Field(of, name) | Expression::HasField(of, name) if is_event(of) => {
            name == "changed"
        }
        Expression::Index(of, name) if is_event(of) => match &**name {
            Expression::Text(name) => name == "changed",
            _ => true,
        },
        other => any_part(other, reads_changed),
    }
}

fn is_event(expression: &Expression) -> bool {
    matches!(expression, Expression::Variable(_))
}

fn is_document(expression: &Expression) -> bool {
    matches!(expression, Expression::Field(of, name) if is_event(of) && name == "document")
}

fn is_null(expression: &Expression) -> bool {
    matches!(expression, Expression::Null)
}

/// It recurses as deep as the expression is.
fn any_part(expression: &Expression, test: fn(&Expression) -> bool) -> bool {
    match expression {
        Expression::Null
        | Expression::Bool(_)
        | Expression::Int(_)
        | Expression::UInt(_)
        | Expression::Float(_)
        | Expression::Text(_)
        | Expression::Variable(_)
        | Expression::Element => false,
        Expression::List(parts) | Expression::Call(_, parts) => parts.iter().any(test),
        Expression::Map(entries) => entries.iter().any(|(key, value)| test(key) || test(value)),
        Expression::Field(of, _) | Expression::HasField(of, _) => test(of),
        Expression::Not(of) | Expression::Negate(of) => test(of),
        Expression::Index(left, right)
        | Expression::And(left, right)
        | Expression::Or(left, right)
        | Expression::Binary(_, left, right)
        | Expression::Quantifier(_, left, right) => test(left) || test(right),
        Expression::If(parts) => parts.iter().any(test),
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventCondition;

    #[test]
    fn what_may_look_at_the_moment_says_so() {
        let reads = |text: &str| EventCondition::parse(text).unwrap().reads_time();
        for text in [
            "event.timestamp > 5",
            "event.document.updatedAt > 5",
            "event.document['createdAt'] > 5",
            "event.document[event.id] == 1",
            "event == {}",
            "event.document == {}",
            "[event.document] == []",
            "event['timestamp'] > 5",
            "event.type == 'x' && !(true ? event.timestamp == 1 : false)",
            "event.document.tags.exists(t, event.timestamp > 5)",
            "size(event.document) > 1",
        ] {
            assert!(reads(text), "{text}");
        }
        for text in [
            "event.type == 'create' && event.document.status == 'x'",
            "event.document != null && event.before.updatedAt > 5",
            "has(event.document.updatedAt) && 'a' in event.document",
            "event.document.exists(key, key == 'a') && event.document.address.updatedAt == 1",
            "event.document['status'] == 'x' && event.origin.depth < 3",
            "'status' in event.changed",
        ] {
            assert!(!reads(text), "{text}");
        }
    }

    #[test]
    fn what_may_look_at_what_has_changed_says_so() {
        let reads = |text: &str| EventCondition::parse(text).unwrap().reads_changed();
        for text in [
            "'a' in event.changed",
            "event['changed'] == []",
            "event[event.id] == 1",
            "event == {}",
        ] {
            assert!(reads(text), "{text}");
        }
        for text in
            ["event.document.changed == 1", "event.type == 'changed'", "event.before.x == 1"]
        {
            assert!(!reads(text), "{text}");
        }
    }
}
