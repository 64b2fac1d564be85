//! What stands between two values: how they compare, what is in what, and what they add up to.

use std::cmp::Ordering;
use std::rc::Rc;

use super::{Evaluation, Failure, arithmetic, wrong_kinds};
use crate::condition::expression::Operator;
use crate::condition::value::Value;
use crate::limits::JSON_DEPTH_MAX;

impl<'a> Evaluation<'_, 'a> {
    pub(super) fn binary(
        &mut self,
        operator: Operator,
        left: &Value<'a>,
        right: &Value<'a>,
    ) -> Result<Value<'a>, Failure> {
        let sign = operator.sign();
        match operator {
            Operator::Equal => self.is_equal(left, right, 0).map(Value::Bool),
            Operator::NotEqual => self.is_equal(left, right, 0).map(|equal| Value::Bool(!equal)),
            Operator::In => self.is_in(left, right).map(Value::Bool),
            Operator::Less => {
                Ok(Value::Bool(self.compare(left, right, sign)? == Some(Ordering::Less)))
            }
            Operator::Greater => {
                Ok(Value::Bool(self.compare(left, right, sign)? == Some(Ordering::Greater)))
            }
            Operator::LessOrEqual => {
                let order = self.compare(left, right, sign)?;
                Ok(Value::Bool(order.is_some_and(Ordering::is_le)))
            }
            Operator::GreaterOrEqual => {
                let order = self.compare(left, right, sign)?;
                Ok(Value::Bool(order.is_some_and(Ordering::is_ge)))
            }
            Operator::Add => self.add(left, right),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                Ok(arithmetic::calculate(operator, left, right)?)
            }
        }
    }

    fn add(&mut self, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Failure> {
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            self.count_text(left.len() + right.len())?;
            return Ok(Value::BuiltText([left, right].concat().into()));
        }
        if let (Some(left), Some(right)) = (left.as_list(), right.as_list()) {
            self.count(left.len() + right.len())?;
            let left = (0..left.len()).filter_map(|place| left.get(place));
            let right = (0..right.len()).filter_map(|place| right.get(place));
            return Ok(Value::BuiltList(Rc::new(left.chain(right).collect())));
        }
        Ok(arithmetic::calculate(Operator::Add, left, right)?)
    }

    fn is_in(&mut self, value: &Value<'a>, of: &Value<'a>) -> Result<bool, Failure> {
        if let Some(list) = of.as_list() {
            for place in 0..list.len() {
                if let Some(element) = list.get(place)
                    && self.is_equal(value, &element, 0)?
                {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        if of.map_len().is_none() {
            return Err(wrong_kinds("in", value, of).into());
        }
        Ok(self.entry(of, value)?.is_some())
    }

    fn compare(
        &mut self,
        left: &Value<'a>,
        right: &Value<'a>,
        operation: &'static str,
    ) -> Result<Option<Ordering>, Failure> {
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            self.count_text(left.len().min(right.len()))?;
            return Ok(Some(left.cmp(right)));
        }
        if let (Value::Bool(left), Value::Bool(right)) = (left, right) {
            return Ok(Some(left.cmp(right)));
        }
        let order = arithmetic::compare(left, right);
        order.ok_or_else(|| wrong_kinds(operation, left, right).into())
    }

    /// It recurses as deep as the values are; what differs in kind is unequal.
    pub(super) fn is_equal(
        &mut self,
        left: &Value<'a>,
        right: &Value<'a>,
        depth: usize,
    ) -> Result<bool, Failure> {
        self.count(1)?;
        if depth > JSON_DEPTH_MAX {
            return Err(Failure::OutOfSteps);
        }
        if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
            if left.len() == right.len() {
                self.count_text(left.len())?;
            }
            return Ok(left == right);
        }
        if let (Some(left), Some(right)) = (left.as_list(), right.as_list()) {
            let places = 0..left.len();
            return Ok(left.len() == right.len()
                && self
                    .are_equal(places.map(|place| (left.get(place), right.get(place))), depth)?);
        }
        if let (Some(left_len), Some(right_len)) = (left.map_len(), right.map_len()) {
            return Ok(left_len == right_len && self.are_maps_equal(left, right, depth)?);
        }
        match (left, right) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
            _ => Ok(arithmetic::compare(left, right) == Some(Some(Ordering::Equal))),
        }
    }

    fn are_equal(
        &mut self,
        pairs: impl Iterator<Item = (Option<Value<'a>>, Option<Value<'a>>)>,
        depth: usize,
    ) -> Result<bool, Failure> {
        for (left, right) in pairs {
            let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
            if !self.is_equal(&left, &right, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the maps, which are of one length, have the same entries.
    fn are_maps_equal(
        &mut self,
        left: &Value<'a>,
        right: &Value<'a>,
        depth: usize,
    ) -> Result<bool, Failure> {
        if let Value::Map(fields) = left {
            for (key, value) in *fields {
                let other = self.look_up(right, key, "==")?;
                if !self.are_equal([(Some(Value::of(value)), other)].into_iter(), depth)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let mut place = 0;
        while let Some((key, value)) = left.entry(place) {
            let other = self.entry(right, &key)?;
            if !self.are_equal([(Some(value), other)].into_iter(), depth)? {
                return Ok(false);
            }
            place += 1;
        }
        Ok(true)
    }
}
