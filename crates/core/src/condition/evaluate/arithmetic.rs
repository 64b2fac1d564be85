//! Numbers: they are compared across their kinds and calculated with within one.

use std::cmp::Ordering;

use super::wrong_kinds;
use crate::condition::EvaluationError;
use crate::condition::expression::Operator;
use crate::condition::value::Value;

/// How two numbers compare; nothing if one is no number. What is not a number is without order.
pub(super) fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Option<Ordering>> {
    Some(match (left, right) {
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::Float(left), right) => {
            compare_to_float(integer(right)?, *left).map(Ordering::reverse)
        }
        (left, Value::Float(right)) => compare_to_float(integer(left)?, *right),
        (left, right) => Some(integer(left)?.cmp(&integer(right)?)),
    })
}

fn integer(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::UInt(value) => Some(i128::from(*value)),
        _ => None,
    }
}

/// Exactly, although not every integer of 64 bits is one of these floats.
fn compare_to_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let floor = float.floor();
    // What is beyond the integers becomes the last of them, which is still larger than ours.
    #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
    let whole = floor as i128;
    let rest = if float > floor { Ordering::Less } else { Ordering::Equal };
    Some(integer.cmp(&whole).then(rest))
}

/// The place in a list that a value names.
pub(super) fn place(index: &Value<'_>) -> Option<i128> {
    match index {
        Value::Float(float) if float.fract() == 0.0 => {
            // A float beyond the integers is beyond every list, too.
            #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
            let place = *float as i128;
            Some(place)
        }
        other => integer(other),
    }
}

pub(super) fn negate<'a>(value: &Value<'a>) -> Result<Value<'a>, EvaluationError> {
    match value {
        Value::Int(value) => {
            value.checked_neg().map(Value::Int).ok_or(EvaluationError::Overflow("-"))
        }
        Value::Float(value) => Ok(Value::Float(-value)),
        other => Err(EvaluationError::WrongKind { operation: "-", kind: other.kind() }),
    }
}

pub(super) fn calculate<'a>(
    operator: Operator,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Result<Value<'a>, EvaluationError> {
    let sign = operator.sign();
    let is_division = matches!(operator, Operator::Divide | Operator::Modulo);
    let result = match (left, right) {
        (_, Value::Int(0) | Value::UInt(0)) if is_division && integer(left).is_some() => {
            return Err(EvaluationError::DivisionByZero);
        }
        (Value::Int(left), Value::Int(right)) => match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(Value::Int),
        (Value::UInt(left), Value::UInt(right)) => match operator {
            Operator::Add => left.checked_add(*right),
            Operator::Subtract => left.checked_sub(*right),
            Operator::Multiply => left.checked_mul(*right),
            Operator::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(Value::UInt),
        (Value::Float(left), Value::Float(right)) if operator != Operator::Modulo => {
            Some(Value::Float(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                _ => left / right,
            }))
        }
        _ => return Err(wrong_kinds(sign, left, right)),
    };
    result.ok_or(EvaluationError::Overflow(sign))
}
