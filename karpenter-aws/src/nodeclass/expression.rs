//! Expressions in CEL in settings of a kubelet: numbers that follow from the instance type.
//!
//! Of CEL there are numbers, texts, arithmetic, comparisons, `&&`, `||`, `!`, `? :`, the conversions `int` and `double`,
//! the functions of texts `startsWith`, `endsWith` and `contains`, and Karpenter's `max` and `min` of two numbers. As in
//! CEL, whole numbers and others are not mixed but in comparisons, `max` and `min`. Texts come from whoever writes a class:
//! the crate `cel` (0.15) runs out of stack at twenty brackets in one another, here there is an error.

mod parse;

use parse::{Function, Node, Operator};

/// A number that follows from an instance type.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

/// What an expression may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// `instance_type`.
    pub instance_type: String,
    /// `vcpus`.
    pub vcpus: i64,
    /// `memory_mib`.
    pub memory_mib: i64,
    /// `default_enis`: the interfaces of the default network card.
    pub default_enis: i64,
    /// `ips_per_eni`.
    pub ips_per_eni: i64,
    /// `max_pods`.
    pub max_pods: i64,
}

/// Why an expression comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// It cannot be read.
    #[error("{text:?} cannot be read: {message}")]
    Syntax {
        /// The expression.
        text: String,
        /// What is wrong with it.
        message: String,
    },
    /// It has no value for an instance type.
    #[error("it has no value: {message}")]
    NoValue {
        /// Why.
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(String),
}

type Evaluated = Result<Value, ExpressionError>;

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionError::Syntax`], with the text.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let syntax = |message| ExpressionError::Syntax { text: text.to_owned(), message };
        parse::parse(text).map(Self).map_err(syntax)
    }

    /// The number that it comes to, towards zero if it is no whole one.
    ///
    /// # Errors
    /// [`ExpressionError::NoValue`]: it is no number, or none that there is, such as after a division by zero.
    pub fn evaluate(&self, variables: &Variables) -> Result<i64, ExpressionError> {
        match value(&self.0, variables)? {
            Value::Int(number) => Ok(number),
            Value::Double(number) => whole(number),
            other => no_value(format!("{other:?} is no number")),
        }
    }
}

fn no_value<T>(message: impl Into<String>) -> Result<T, ExpressionError> {
    Err(ExpressionError::NoValue { message: message.into() })
}

/// Towards zero.
fn whole(number: f64) -> Result<i64, ExpressionError> {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    if !number.is_finite() || number.abs() >= TOO_LARGE {
        return no_value(format!("{number} is no whole number"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
    Ok(number as i64)
}

#[expect(clippy::cast_precision_loss, reason = "as in CEL")]
const fn double(number: i64) -> f64 {
    number as f64
}

fn value(node: &Node, variables: &Variables) -> Evaluated {
    match node {
        Node::Int(number) => Ok(Value::Int(*number)),
        Node::Double(number) => Ok(Value::Double(*number)),
        Node::Bool(is_so) => Ok(Value::Bool(*is_so)),
        Node::Text(text) => Ok(Value::Text(text.clone())),
        Node::Variable(name) => variable(name, variables),
        Node::Negative(of) => match value(of, variables)? {
            Value::Int(number) => number.checked_neg().map_or_else(|| no_value("too large"), |n| Ok(Value::Int(n))),
            Value::Double(number) => Ok(Value::Double(-number)),
            other => no_value(format!("-{other:?}")),
        },
        Node::Not(of) => Ok(Value::Bool(!truth(of, variables)?)),
        Node::If(parts) => value(if truth(&parts[0], variables)? { &parts[1] } else { &parts[2] }, variables),
        Node::Both(parts) => Ok(Value::Bool(truth(&parts[0], variables)? && truth(&parts[1], variables)?)),
        Node::Either(parts) => Ok(Value::Bool(truth(&parts[0], variables)? || truth(&parts[1], variables)?)),
        Node::Binary(operator, parts) => binary(*operator, value(&parts[0], variables)?, value(&parts[1], variables)?),
        Node::Call(function, arguments) => {
            let values: Result<Vec<Value>, _> = arguments.iter().map(|argument| value(argument, variables)).collect();
            call(*function, &values?)
        }
    }
}

fn truth(node: &Node, variables: &Variables) -> Result<bool, ExpressionError> {
    match value(node, variables)? {
        Value::Bool(is_so) => Ok(is_so),
        other => no_value(format!("{other:?} is neither true nor false")),
    }
}

fn variable(name: &str, variables: &Variables) -> Evaluated {
    Ok(Value::Int(match name {
        "vcpus" => variables.vcpus,
        "memory_mib" => variables.memory_mib,
        "default_enis" => variables.default_enis,
        "ips_per_eni" => variables.ips_per_eni,
        "max_pods" => variables.max_pods,
        _ => return Ok(Value::Text(variables.instance_type.clone())),
    }))
}

fn binary(operator: Operator, left: Value, right: Value) -> Evaluated {
    use Operator::{Add, Divide, Multiply, Remainder, Subtract};
    match (operator, left, right) {
        (Add | Subtract | Multiply | Divide | Remainder, Value::Int(a), Value::Int(b)) => {
            let found = match operator {
                Add => a.checked_add(b),
                Subtract => a.checked_sub(b),
                Multiply => a.checked_mul(b),
                Divide => a.checked_div(b),
                _ => a.checked_rem(b),
            };
            found.map_or_else(|| no_value("a division by zero, or too large a number"), |n| Ok(Value::Int(n)))
        }
        (Add, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Subtract, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Multiply, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Divide, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Add, Value::Text(a), Value::Text(b)) => Ok(Value::Text(a + &b)),
        (_, left, right) => compare(operator, &left, &right),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Evaluated {
    let order = match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Double(b)) => double(*a).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&double(*b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let found = order.and_then(|order| match operator {
        Operator::Less => Some(order.is_lt()),
        Operator::AtMost => Some(order.is_le()),
        Operator::More => Some(order.is_gt()),
        Operator::AtLeast => Some(order.is_ge()),
        Operator::Equal => Some(order.is_eq()),
        Operator::Unequal => Some(order.is_ne()),
        _ => None,
    });
    found.map_or_else(|| no_value(format!("{left:?} and {right:?} do not go together")), |is_so| Ok(Value::Bool(is_so)))
}

fn call(function: Function, arguments: &[Value]) -> Evaluated {
    match (function, arguments) {
        (Function::Int, [Value::Int(number)]) => Ok(Value::Int(*number)),
        (Function::Int, [Value::Double(number)]) => whole(*number).map(Value::Int),
        (Function::Double, [Value::Int(number)]) => Ok(Value::Double(double(*number))),
        (Function::Double, [Value::Double(number)]) => Ok(Value::Double(*number)),
        (Function::Max, [Value::Int(a), Value::Int(b)]) => Ok(Value::Int(*a.max(b))),
        (Function::Min, [Value::Int(a), Value::Int(b)]) => Ok(Value::Int(*a.min(b))),
        (Function::Max | Function::Min, [a, b]) => {
            let number = |value: &Value| match value {
                Value::Int(number) => Ok(double(*number)),
                Value::Double(number) => Ok(*number),
                other => no_value(format!("{other:?} is no number")),
            };
            let (a, b) = (number(a)?, number(b)?);
            Ok(Value::Double(if function == Function::Max { a.max(b) } else { a.min(b) }))
        }
        (Function::StartsWith, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        (Function::EndsWith, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        (Function::Contains, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.contains(&**part))),
        _ => no_value(format!("{function:?} does not take {arguments:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Variables {
        Variables {
            instance_type: "m5.large".to_owned(),
            vcpus: 2,
            memory_mib: 8192,
            default_enis: 3,
            ips_per_eni: 10,
            max_pods: 29,
        }
    }

    fn of(text: &str) -> Result<i64, ExpressionError> {
        Expression::parse(text)?.evaluate(&large())
    }

    #[test]
    fn expressions_come_to_numbers() {
        for (text, expected) in [
            ("max_pods - 1", 28),
            ("default_enis * (ips_per_eni - 1) + 2", 29),
            ("1 + 2 * 3 - 4", 3),
            ("10 - 3 - 2", 5),
            ("-7 / 2", -3),
            ("7 % 4", 3),
            ("2.9", 2),
            ("double(memory_mib) * 0.05", 409),
            ("int(double(vcpus) * 1.5) + 1", 4),
            ("max(vcpus, 4)", 4),
            ("min(vcpus, 1.5)", 1),
            ("vcpus > 1 && memory_mib >= 8192 ? 10 : 20", 10),
            ("!(vcpus != 2) || false ? 1 : 2", 1),
            ("instance_type.startsWith('m5.') ? 1 : 2", 1),
            ("instance_type == \"m5.large\" ? vcpus < 4 ? 5 : 6 : 7", 5),
            ("0x10", 16),
        ] {
            assert_eq!(of(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_with_the_text() {
        for text in ["", "max_pods -", "pods", "f(1)", "max(1)", "1 2", "(1", "'a", "1 +* 2", "vcpus ? 1", "@", "[1]"] {
            let error = Expression::parse(text).expect_err(text);
            assert!(matches!(&error, ExpressionError::Syntax { text: told, .. } if told == text), "{error}");
        }
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        Expression::parse(&deep).expect_err("too deep");
    }

    #[test]
    fn what_is_no_number_has_no_value() {
        for text in [
            "vcpus / 0",
            "vcpus % 0",
            "1.0 / 0.0",
            "9223372036854775807 + 1",
            "memory_mib * 0.05",
            "vcpus > 1",
            "instance_type",
            "1 ? 2 : 3",
            "'a' < 1 ? 2 : 3",
            "int(1e30)",
        ] {
            assert!(matches!(of(text), Err(ExpressionError::NoValue { .. })), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn a_long_row_is_an_error_and_takes_no_stack() {
        assert_eq!(of(&format!("1{}", "+1".repeat(499))), Ok(500));
        for row in ["+1", "*1", "&&true", "||true"] {
            let found = of(&format!("1{}", row.repeat(100_000)));
            assert!(matches!(found, Err(ExpressionError::Syntax { .. })), "{row}");
        }
    }
}
