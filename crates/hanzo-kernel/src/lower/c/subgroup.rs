//! Subgroup operations: functions of the prelude under the prefix `sg_`, for a whole subgroup.

use naga::{CollectiveOperation, Expression, GatherMode, Handle, SubgroupOperation};

use super::{Result, Writer, body::Body, expr::bare, unsupported};

impl<'a> Writer<'a> {
    pub(super) fn ballot(
        &mut self,
        body: &mut Body<'a>,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
    ) -> Result<()> {
        let predicate = predicate.map_or(Ok("true".into()), |p| self.expr(body, p))?;
        self.bind(body, result, &format!("sg_ballot({})", bare(&predicate)))
    }

    pub(super) fn gather(
        &mut self,
        body: &mut Body<'a>,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let (name, index) = match mode {
            GatherMode::BroadcastFirst => ("shuffle", None),
            GatherMode::Broadcast(i) | GatherMode::Shuffle(i) => ("shuffle", Some(i)),
            GatherMode::ShuffleDown(i) => ("shuffle_down", Some(i)),
            GatherMode::ShuffleUp(i) => ("shuffle_up", Some(i)),
            GatherMode::ShuffleXor(i) => ("shuffle_xor", Some(i)),
            GatherMode::QuadBroadcast(_) | GatherMode::QuadSwap(_) => {
                return unsupported("subgroup operation", mode);
            }
        };
        // All lanes take part, so the first one is lane 0.
        let index = index.map_or(Ok("0u".into()), |i| self.expr(body, i))?;
        let argument = self.expr(body, argument)?;
        self.bind(body, result, &format!("sg_{name}({}, {})", bare(&argument), bare(&index)))
    }

    pub(super) fn collective(
        &mut self,
        body: &mut Body<'a>,
        op: SubgroupOperation,
        kind: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let op_name = match op {
            SubgroupOperation::All => "all",
            SubgroupOperation::Any => "any",
            SubgroupOperation::Add => "add",
            SubgroupOperation::Mul => "mul",
            SubgroupOperation::Min => "min",
            SubgroupOperation::Max => "max",
            SubgroupOperation::And => "and",
            SubgroupOperation::Or => "or",
            SubgroupOperation::Xor => "xor",
        };
        let argument = self.expr(body, argument)?;
        let argument = bare(&argument);
        let is_sum = matches!(op, SubgroupOperation::Add | SubgroupOperation::Mul);
        let text = match kind {
            CollectiveOperation::Reduce => format!("sg_{op_name}({argument})"),
            CollectiveOperation::InclusiveScan if is_sum => format!("sg_inclusive_{op_name}({argument})"),
            CollectiveOperation::ExclusiveScan if is_sum => format!("sg_exclusive_{op_name}({argument})"),
            _ => return unsupported("subgroup scan", op),
        };
        self.bind(body, result, &text)
    }
}
