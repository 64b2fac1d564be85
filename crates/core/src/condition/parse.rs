//! From a text to an expression: what the parser understands, if a condition may ask for it.

use std::mem::take;

use cel::Env;
use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};

use super::expression::{Expression, Function, Operator, Quantifier};
use super::{ConditionError, excerpt, scan};
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_NODES_MAX};

/// Longest explanation of the parser that is handed on, in bytes.
const EXPLANATION_BYTES_MAX: usize = 160;

const OPERATORS: [(&str, Operator); 12] = [
    (operators::ADD, Operator::Add),
    (operators::SUBSTRACT, Operator::Subtract),
    (operators::MULTIPLY, Operator::Multiply),
    (operators::DIVIDE, Operator::Divide),
    (operators::MODULO, Operator::Modulo),
    (operators::EQUALS, Operator::Equal),
    (operators::NOT_EQUALS, Operator::NotEqual),
    (operators::LESS, Operator::Less),
    (operators::LESS_EQUALS, Operator::LessOrEqual),
    (operators::GREATER, Operator::Greater),
    (operators::GREATER_EQUALS, Operator::GreaterOrEqual),
    (operators::IN, Operator::In),
];

const QUANTIFIERS: [Quantifier; 3] = [Quantifier::All, Quantifier::Exists, Quantifier::ExistsOne];
/// What is called on a string.
const STRING_FUNCTIONS: [Function; 3] =
    [Function::Contains, Function::StartsWith, Function::EndsWith];

/// A name that a condition knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    /// What is in it; nothing if it is a string. None of it is ever a boolean.
    pub(crate) fields: &'a [&'a str],
}

/// What a condition may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vocabulary<'a> {
    pub(crate) variables: &'a [Variable<'a>],
    /// Whether it may ask for other documents, by `get(path)` and `exists(path)`.
    pub(crate) has_documents: bool,
}

/// Reads a condition. What comes out is evaluated with the values of the vocabulary's variables,
/// in their order.
pub(crate) fn parse(text: &str, vocabulary: Vocabulary<'_>) -> Result<Expression, ConditionError> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(ConditionError::TooLong);
    }
    scan::check(text)?;
    // Without macros and extensions: `all` and its like come as the calls that they are written as.
    let parser = Env::default().with_optional_support(false).parser();
    let tree = parser.parse(text).map_err(|error| {
        let first = error.errors.first().map(|error| explanation(&error.msg));
        ConditionError::Syntax(first.unwrap_or_else(|| "it is incomplete".to_owned()))
    })?;
    let mut reader = Reader { vocabulary, element: None, nodes: 0 };
    let expression = reader.read(tree, 1)?;
    match expression.never_bool() {
        Some(kind) => Err(ConditionError::NotBool(kind)),
        None => Ok(expression),
    }
}

/// What the parser says, without the list of all that it would rather have seen.
fn explanation(message: &str) -> String {
    let end = message.find(" expecting ").unwrap_or(message.len()).min(EXPLANATION_BYTES_MAX);
    let message = message.get(..message.floor_char_boundary(end)).unwrap_or_default();
    message.strip_prefix("Syntax error: ").unwrap_or(message).replace("<EOF>", "its end")
}

struct Reader<'a> {
    vocabulary: Vocabulary<'a>,
    /// What the element of the quantifier around it is called.
    element: Option<String>,
    nodes: usize,
}

impl Reader<'_> {
    fn read(&mut self, node: IdedExpr, depth: usize) -> Result<Expression, ConditionError> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(ConditionError::TooDeep);
        }
        self.nodes += 1;
        if self.nodes > EXPRESSION_NODES_MAX {
            return Err(ConditionError::TooManyNodes);
        }
        match node.expr {
            Expr::Literal(value) => literal(value),
            Expr::Ident(name) => self.name(&name),
            Expr::Select(select) => {
                let (of, field) = self.select(select, depth)?;
                Ok(Expression::Field(of, field))
            }
            Expr::List(ListExpr { elements, .. }) => {
                Ok(Expression::List(self.read_all(elements, depth)?))
            }
            Expr::Map(map) => self.map(map, depth),
            Expr::Call(call) => self.call(call, depth),
            Expr::Struct(_) => Err(ConditionError::Unsupported("messages")),
            Expr::Comprehension(_) | Expr::Unspecified => {
                Err(ConditionError::Unsupported("loops of its own"))
            }
        }
    }

    fn read_all(
        &mut self,
        nodes: Vec<IdedExpr>,
        depth: usize,
    ) -> Result<Vec<Expression>, ConditionError> {
        nodes.into_iter().map(|node| self.read(node, depth + 1)).collect()
    }

    fn boxed(&mut self, node: IdedExpr, depth: usize) -> Result<Box<Expression>, ConditionError> {
        self.read(node, depth + 1).map(Box::new)
    }

    fn name(&self, name: &str) -> Result<Expression, ConditionError> {
        if self.element.as_deref() == Some(name) {
            return Ok(Expression::Element);
        }
        let variables = self.vocabulary.variables;
        match variables.iter().position(|it| it.name == name) {
            Some(place) => Ok(Expression::Variable(place)),
            None => Err(ConditionError::UnknownVariable {
                name: excerpt(name),
                known: list(variables.iter().map(|it| it.name)),
            }),
        }
    }

    fn select(
        &mut self,
        select: SelectExpr,
        depth: usize,
    ) -> Result<(Box<Expression>, String), ConditionError> {
        let of = self.boxed(*select.operand, depth)?;
        if let Expression::Variable(place) = *of
            && let Some(variable) = self.vocabulary.variables.get(place)
            && !variable.fields.contains(&select.field.as_str())
        {
            return Err(ConditionError::UnknownField {
                variable: variable.name.to_owned(),
                name: excerpt(&select.field),
                known: list(variable.fields.iter().copied()),
            });
        }
        Ok((of, select.field))
    }

    fn map(&mut self, map: MapExpr, depth: usize) -> Result<Expression, ConditionError> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in map.entries {
            let EntryExpr::MapEntry(entry) = entry.expr else {
                return Err(ConditionError::Unsupported("messages"));
            };
            let key = self.read(entry.key, depth + 1)?;
            entries.push((key, self.read(entry.value, depth + 1)?));
        }
        Ok(Expression::Map(entries))
    }

    fn call(&mut self, call: CallExpr, depth: usize) -> Result<Expression, ConditionError> {
        let CallExpr { func_name, target, mut args } = call;
        let name = func_name.as_str();
        if let Some(target) = target {
            return self.member_call(name, *target, args, depth);
        }
        let binary = OPERATORS.iter().find(|(spelling, _)| *spelling == name);
        match (name, args.as_mut_slice()) {
            (operators::LOGICAL_NOT, [of]) => Ok(Expression::Not(self.boxed(take(of), depth)?)),
            (operators::NEGATE, [of]) => Ok(Expression::Negate(self.boxed(take(of), depth)?)),
            (operators::CONDITIONAL, [of, then, otherwise]) => {
                let of = self.read(take(of), depth + 1)?;
                let then = self.read(take(then), depth + 1)?;
                let otherwise = self.read(take(otherwise), depth + 1)?;
                Ok(Expression::If(Box::new([of, then, otherwise])))
            }
            (_, [left, right]) if binary.is_some() || is_two_sided(name) => {
                let left = self.boxed(take(left), depth)?;
                let right = self.boxed(take(right), depth)?;
                Ok(match (binary, name) {
                    (Some((_, operator)), _) => Expression::Binary(*operator, left, right),
                    (_, operators::LOGICAL_AND) => Expression::And(left, right),
                    (_, operators::LOGICAL_OR) => Expression::Or(left, right),
                    _ => Expression::Index(left, right),
                })
            }
            (operators::HAS, _) => self.has(args, depth),
            _ => self.function(name, args, depth),
        }
    }

    fn has(&mut self, args: Vec<IdedExpr>, depth: usize) -> Result<Expression, ConditionError> {
        let wrong = ConditionError::Arguments { name: "has", form: "has(x.field)" };
        let Ok([IdedExpr { expr: Expr::Select(select), .. }]) = <[IdedExpr; 1]>::try_from(args)
        else {
            return Err(wrong);
        };
        let (of, field) = self.select(select, depth)?;
        Ok(Expression::HasField(of, field))
    }

    fn function(
        &mut self,
        name: &str,
        args: Vec<IdedExpr>,
        depth: usize,
    ) -> Result<Expression, ConditionError> {
        let (function, form) = match name {
            "size" => (Function::Size, "size(x)"),
            "get" if self.vocabulary.has_documents => (Function::Get, "get(path)"),
            "exists" if self.vocabulary.has_documents => (Function::Exists, "exists(path)"),
            _ => return Err(self.unknown_function(name)),
        };
        if args.len() != 1 {
            return Err(ConditionError::Arguments { name: function.name(), form });
        }
        Ok(Expression::Call(function, self.read_all(args, depth)?))
    }

    fn member_call(
        &mut self,
        name: &str,
        target: IdedExpr,
        mut args: Vec<IdedExpr>,
        depth: usize,
    ) -> Result<Expression, ConditionError> {
        if let Some(quantifier) = QUANTIFIERS.into_iter().find(|it| it.name() == name) {
            return self.quantifier(quantifier, target, args, depth);
        }
        let string_function = STRING_FUNCTIONS.into_iter().find(|it| it.name() == name);
        let (function, count, form) = match string_function {
            Some(function) => (function, 1, "x.contains(y)"),
            None if name == "size" => (Function::Size, 0, "x.size()"),
            None => return Err(self.unknown_function(name)),
        };
        if args.len() != count {
            return Err(ConditionError::Arguments { name: function.name(), form });
        }
        args.insert(0, target);
        Ok(Expression::Call(function, self.read_all(args, depth)?))
    }

    fn quantifier(
        &mut self,
        quantifier: Quantifier,
        target: IdedExpr,
        args: Vec<IdedExpr>,
        depth: usize,
    ) -> Result<Expression, ConditionError> {
        let name = quantifier.name();
        let wrong = ConditionError::Arguments { name, form: "list.all(x, x > 0)" };
        let Ok([variable, body]) = <[IdedExpr; 2]>::try_from(args) else { return Err(wrong) };
        let Expr::Ident(variable) = variable.expr else { return Err(wrong) };
        if self.element.is_some() {
            return Err(ConditionError::NestedMacro(name.to_owned()));
        }
        if self.vocabulary.variables.iter().any(|it| it.name == variable) {
            return Err(ConditionError::NameTaken(variable));
        }
        let list = self.boxed(target, depth)?;
        self.element = Some(variable);
        let body = self.boxed(body, depth);
        self.element = None;
        Ok(Expression::Quantifier(quantifier, list, body?))
    }

    fn unknown_function(&self, name: &str) -> ConditionError {
        let functions = ["size", "contains", "startsWith", "endsWith"];
        let macros = ["has", "all", "exists", "exists_one"];
        let documents =
            ["get", "exists(path)"].into_iter().filter(|_| self.vocabulary.has_documents);
        let known = list(functions.into_iter().chain(macros).chain(documents));
        ConditionError::UnknownFunction { name: excerpt(name), known }
    }
}

fn is_two_sided(name: &str) -> bool {
    matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR | operators::INDEX)
}

fn literal(value: LiteralValue) -> Result<Expression, ConditionError> {
    Ok(match value {
        LiteralValue::Null => Expression::Null,
        LiteralValue::Boolean(value) => Expression::Bool(*value.inner()),
        LiteralValue::Int(value) => Expression::Int(*value.inner()),
        LiteralValue::UInt(value) => Expression::UInt(*value.inner()),
        LiteralValue::Double(value) => Expression::Float(*value.inner()),
        LiteralValue::String(value) => Expression::Text(value.into_inner()),
        LiteralValue::Bytes(_) => return Err(ConditionError::Unsupported("bytes")),
    })
}

/// Names as a sentence has them: "`a`, `b` and `c`".
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        None => "nothing inside".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
