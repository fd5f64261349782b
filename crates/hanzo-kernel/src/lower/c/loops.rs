//! Loops: `for (; condition; step)` from the IR's endless loops.
//!
//! naga writes every loop as `loop { if (condition) {} else { break; } … continuing { step } }`. Compilers unroll a
//! `for` and keep its register tiles in registers; from the naive `for (;;) { if … break; }` AMD's clang leaves them in
//! scratch memory.

use naga::{BinaryOperator, Block, Expression, Handle, Literal, Statement};

use super::{
    Result, Writer,
    body::{Body, Continue},
    expr::{bare, operator},
};

/// Loops of at most this many rounds are unrolled.
const UNROLL_MAX: u32 = 16;

/// The parts of a loop that a head of C++ can hold.
struct Head<'b> {
    condition: Option<Handle<Expression>>,
    /// Whether the loop ends when the condition holds.
    negated: bool,
    /// The variable and its next value.
    step: Option<(Handle<Expression>, Handle<Expression>)>,
    /// What is left of the body.
    body: &'b [Statement],
    /// Expressions that are computed in the head, each time anew.
    expressions: Vec<Handle<Expression>>,
}

impl<'a> Writer<'a> {
    pub(super) fn loop_statement(
        &mut self,
        body: &mut Body<'a>,
        block: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        let head = Head::new(body, block, continuing, break_if);
        body.headed.extend(&head.expressions);
        body.in_head = true;
        let condition = head.condition.map(|c| self.expr(body, c)).transpose();
        let step = head.step.map(|(place, value)| self.step(body, place, value)).transpose();
        body.in_head = false;
        let (mut condition, step) = (condition?, step?);
        if head.negated {
            condition = condition.map(|c| format!("!({})", bare(&c)));
        }
        if unrolls(body, &head) {
            self.line(body.level, "UNROLL");
        }
        let text = match (condition.as_deref().map(bare), step) {
            (Some(c), Some(s)) => format!("for (; {c}; {s}) {{"),
            (None, Some(s)) => format!("for (;; {s}) {{"),
            (Some(c), None) if continuing.is_empty() => format!("while ({c}) {{"),
            (Some(c), None) => format!("for (; {c};) {{"),
            (None, None) => "for (;;) {".into(),
        };
        self.line(body.level, text);
        body.level += 1;
        if head.step.is_some() || continuing.is_empty() && break_if.is_none() {
            body.loops.push(Continue::Native);
            self.statements(body, head.body)?;
            body.loops.pop();
        } else {
            self.body_with_label(body, head.body)?;
            self.statements(body, continuing)?;
            if let Some(condition) = break_if {
                let condition = self.expr(body, condition)?;
                self.line(body.level, format!("if ({}) break;", bare(&condition)));
            }
        }
        body.level -= 1;
        self.line(body.level, "}");
        Ok(())
    }

    /// A body that `continue` leaves by a jump past its block, to what follows.
    fn body_with_label(&mut self, body: &mut Body<'a>, statements: &'a [Statement]) -> Result<()> {
        if !continues(statements) {
            body.loops.push(Continue::Native);
            self.statements(body, statements)?;
            body.loops.pop();
            return Ok(());
        }
        body.n_labels += 1;
        let label = format!("continue_{}", body.n_labels);
        body.loops.push(Continue::Label(label.clone()));
        self.line(body.level, "{");
        body.level += 1;
        self.statements(body, statements)?;
        body.level -= 1;
        self.line(body.level, "}");
        self.line(body.level - 1, format!("{label}:;"));
        body.loops.pop();
        Ok(())
    }

    /// `i += 1u`, or `i = f(i)`.
    fn step(&self, body: &Body<'a>, place: Handle<Expression>, value: Handle<Expression>) -> Result<String> {
        let target = self.expr(body, place)?;
        let compound = match body.function.expressions[value] {
            Expression::Binary { op, left, right } => match body.function.expressions[left] {
                Expression::Load { pointer } if pointer == place => Some((op, right)),
                _ => None,
            },
            _ => None,
        };
        Ok(match compound {
            Some((op, right)) => {
                format!("{target} {}= {}", operator(op), bare(&self.expr(body, right)?))
            }
            None => format!("{target} = {}", bare(&self.expr(body, value)?)),
        })
    }
}

impl<'b> Head<'b> {
    fn new(
        body: &Body<'_>,
        block: &'b Block,
        continuing: &[Statement],
        break_if: Option<Handle<Expression>>,
    ) -> Self {
        let mut head =
            Head { condition: None, negated: false, step: None, body: block, expressions: Vec::new() };
        if let Some((emitted, Statement::If { condition, accept, reject }, rest)) = split_emits(block)
            && let (negated, [], [Statement::Break]) | (negated, [Statement::Break], []) =
                (!accept.is_empty(), &accept[..], &reject[..])
        {
            head.negated = negated;
            head.condition = Some(*condition);
            head.body = rest;
            head.expressions.extend(emitted);
        }
        // The parser wraps the written body in a block of its own.
        if let [Statement::Block(inner)] = head.body {
            head.body = inner;
        }
        if break_if.is_none()
            && let Some((emitted, &Statement::Store { pointer, value }, [])) = split_emits(continuing)
            && matches!(body.function.expressions[pointer], Expression::LocalVariable(_))
        {
            head.step = Some((pointer, value));
            head.expressions.extend(emitted);
        }
        head
    }
}

/// Emitted expressions, a statement, and what follows.
type Split<'b> = (Vec<Handle<Expression>>, &'b Statement, &'b [Statement]);

/// The expressions emitted at the start of a block, the first statement after, and the rest.
fn split_emits(block: &[Statement]) -> Option<Split<'_>> {
    let n = block.iter().take_while(|s| matches!(s, Statement::Emit(_))).count();
    let emitted = block[..n].iter().flat_map(|s| match s {
        Statement::Emit(range) => range.clone().collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (first, rest) = block[n..].split_first()?;
    Some((emitted.collect(), first, rest))
}

/// Whether a loop counts a variable up to a small constant.
fn unrolls(body: &Body<'_>, head: &Head<'_>) -> bool {
    let e = &body.function.expressions;
    let small = |h| match e[h] {
        Expression::Literal(Literal::U32(n)) => n <= UNROLL_MAX,
        Expression::Literal(Literal::I32(n)) => n.unsigned_abs() <= UNROLL_MAX,
        _ => false,
    };
    let compares = head.condition.is_some_and(|c| match e[c] {
        Expression::Binary { op: BinaryOperator::Less | BinaryOperator::LessEqual, right, .. } => {
            small(right)
        }
        _ => false,
    });
    let steps = head.step.is_some_and(|(_, value)| match e[value] {
        Expression::Binary { op: BinaryOperator::Add, right, .. } => small(right),
        _ => false,
    });
    compares && steps && !head.negated
}

/// Whether statements of this loop, not of an inner one, continue it.
fn continues(statements: &[Statement]) -> bool {
    statements.iter().any(|s| match s {
        Statement::Continue => true,
        Statement::Block(b) => continues(b),
        Statement::If { accept, reject, .. } => continues(accept) || continues(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|c| continues(&c.body)),
        _ => false,
    })
}
