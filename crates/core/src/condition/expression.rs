//! A condition as it is kept: checked, and nothing in it that evaluation would have to refuse.

/// A node. What is below it is never deeper than `EXPRESSION_DEPTH_MAX`.
#[derive(Debug)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(String),
    List(Vec<Expression>),
    Map(Vec<(Expression, Expression)>),
    /// Its place in the vocabulary that the condition was read with.
    Variable(usize),
    /// What the `all` or `exists` around it is looking at.
    Element,
    Field(Box<Expression>, String),
    /// `has(x.field)`
    HasField(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    If(Box<[Expression; 3]>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Function, Vec<Expression>),
    Quantifier(Quantifier, Box<Expression>, Box<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::In => "in",
        }
    }

    fn is_arithmetic(self) -> bool {
        use Operator::{Add, Divide, Modulo, Multiply, Subtract};
        matches!(self, Add | Subtract | Multiply | Divide | Modulo)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    /// `get(path)`, in rules.
    Get,
    /// `exists(path)`, in rules.
    Exists,
}

impl Function {
    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Size => "size",
            Function::Contains => "contains",
            Function::StartsWith => "startsWith",
            Function::EndsWith => "endsWith",
            Function::Get => "get",
            Function::Exists => "exists",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

impl Quantifier {
    pub(super) fn name(self) -> &'static str {
        match self {
            Quantifier::All => "all",
            Quantifier::Exists => "exists",
            Quantifier::ExistsOne => "exists_one",
        }
    }
}

impl Expression {
    /// What this is whatever the document, if that is neither true nor false.
    ///
    /// A field of a document can be a boolean; what the vocabulary itself has never is.
    pub(super) fn never_bool(&self) -> Option<&'static str> {
        match self {
            Expression::Null => Some("null"),
            Expression::Int(_) | Expression::UInt(_) | Expression::Float(_) => Some("a number"),
            Expression::Text(_) => Some("a string"),
            Expression::List(_) => Some("a list"),
            Expression::Map(_) => Some("a map"),
            Expression::Negate(_) | Expression::Call(Function::Size, _) => Some("a number"),
            Expression::Binary(operator, ..) if operator.is_arithmetic() => {
                Some("the result of a calculation")
            }
            Expression::Call(Function::Get, _) => Some("a document"),
            Expression::Variable(_) => Some("a variable that is no boolean"),
            Expression::Field(of, _) if matches!(**of, Expression::Variable(_)) => {
                Some("a field that is no boolean")
            }
            Expression::If(parts) => {
                let [_, then, otherwise] = &**parts;
                then.never_bool().and(otherwise.never_bool())
            }
            _ => None,
        }
    }

    /// How many nodes this is, itself among them.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        1 + self.parts().into_iter().map(Expression::nodes).sum::<usize>()
    }

    /// How deep it is.
    #[cfg(test)]
    pub(super) fn depth(&self) -> usize {
        1 + self.parts().into_iter().map(Expression::depth).max().unwrap_or(0)
    }

    /// Whether it asks for documents beside the one that it is about.
    pub(crate) fn reads_documents(&self) -> bool {
        matches!(self, Expression::Call(Function::Get | Function::Exists, _))
            || self.parts().into_iter().any(Expression::reads_documents)
    }

    fn parts(&self) -> Vec<&Expression> {
        match self {
            Expression::Null
            | Expression::Bool(_)
            | Expression::Int(_)
            | Expression::UInt(_)
            | Expression::Float(_)
            | Expression::Text(_)
            | Expression::Variable(_)
            | Expression::Element => Vec::new(),
            Expression::List(parts) | Expression::Call(_, parts) => parts.iter().collect(),
            Expression::Map(entries) => entries.iter().flat_map(|(k, v)| [k, v]).collect(),
            Expression::Field(of, _) | Expression::HasField(of, _) => vec![of],
            Expression::Not(of) | Expression::Negate(of) => vec![of],
            Expression::If(parts) => parts.iter().collect(),
            Expression::Index(left, right)
            | Expression::And(left, right)
            | Expression::Or(left, right)
            | Expression::Binary(_, left, right)
            | Expression::Quantifier(_, left, right) => vec![left, right],
        }
    }
}
