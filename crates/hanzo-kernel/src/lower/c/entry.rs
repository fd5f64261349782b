//! Functions and the kernel: parameters, workgroup memory, ids, local variables.

use naga::{
    AddressSpace, ArraySize, Binding, BuiltIn, EntryPoint, Expression, Function, FunctionArgument,
    GlobalVariable, Handle, Literal, StorageAccess, TypeInner,
    proc::{GlobalCtx, NameKey},
    valid::FunctionInfo,
};

use super::{
    Result, Writer,
    body::{Body, Owner},
    unsupported,
};

/// Workgroup memory declared in one array is cut at multiples of this many bytes.
const SHARED_ALIGN: u32 = 16;

impl<'a> Writer<'a> {
    /// All functions but the entry point.
    pub(super) fn functions(&mut self) -> Result<()> {
        let module = self.module;
        for (handle, function) in module.functions.iter() {
            if self.intrinsic(handle).is_none() {
                self.function(handle, function)?;
            }
        }
        Ok(())
    }

    /// The function of the prelude that stands for one of WGSL.
    pub(super) fn intrinsic(&self, function: Handle<Function>) -> Option<&'static str> {
        let name = self.module.functions[function].name.as_deref()?;
        self.dialect.intrinsics.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    fn function(&mut self, handle: Handle<Function>, function: &'a Function) -> Result<()> {
        let info = &self.info[handle];
        let mut params = Vec::new();
        for (i, argument) in (0..).zip(&function.arguments) {
            let name = self.name(&NameKey::FunctionArgument(handle, i));
            params.push(format!("{} {name}", self.type_name(argument.ty)?));
        }
        for (g, global) in self.globals(info) {
            let name = self.name(&NameKey::GlobalVariable(g));
            params.push(match global.space {
                AddressSpace::Storage { .. } => self.pointer(g, global)?,
                AddressSpace::WorkGroup | AddressSpace::Private => {
                    format!("{}& {name}", self.type_name(global.ty)?)
                }
                _ => format!("const {}& {name}", self.type_name(global.ty)?),
            });
        }
        let result = function.result.as_ref().map(|r| self.type_name(r.ty));
        let result = result.transpose()?.unwrap_or("void".into());
        let name = self.name(&NameKey::Function(handle)).to_owned();
        self.line(0, format!("\nDEV {result} {name}({}) {{", params.join(", ")));
        let mut body = Body::new(function, info, Owner::Function(handle));
        self.locals(&body)?;
        if function.result.is_none() {
            self.last_statements(&mut body, &function.body)?;
        } else {
            self.statements(&mut body, &function.body)?;
        }
        self.line(0, "}");
        Ok(())
    }

    /// The globals that a function or one of its callees uses.
    fn globals(
        &self,
        info: &'a FunctionInfo,
    ) -> impl Iterator<Item = (Handle<GlobalVariable>, &'a GlobalVariable)> + use<'a> {
        let module = self.module;
        module.global_variables.iter().filter(move |&(g, _)| !info[g].is_empty())
    }

    /// How a global is written where it is used: a buffer that is no array is a pointer to its only element.
    pub(super) fn global_place(&self, g: Handle<GlobalVariable>) -> String {
        let global = &self.module.global_variables[g];
        let name = self.name(&NameKey::GlobalVariable(g));
        let is_storage = matches!(global.space, AddressSpace::Storage { .. });
        if is_storage && !self.is_run_time_array(global) { format!("(*{name})") } else { name.into() }
    }

    fn is_run_time_array(&self, global: &GlobalVariable) -> bool {
        matches!(self.module.types[global.ty].inner, TypeInner::Array { size: ArraySize::Dynamic, .. })
    }

    fn pointer(&self, g: Handle<GlobalVariable>, global: &GlobalVariable) -> Result<String> {
        let constant = if writable(global) { "" } else { "const " };
        let name = self.name(&NameKey::GlobalVariable(g));
        Ok(format!("{constant}{}* RESTRICT {name}", self.type_name(global.ty)?))
    }

    fn locals(&mut self, body: &Body<'a>) -> Result<()> {
        for (handle, local) in body.function.local_variables.iter() {
            let name = self.name(&body.local_key(handle)).to_owned();
            let ty = self.type_name(local.ty)?;
            let init = local.init.map(|e| self.expr(body, e)).transpose()?;
            self.line(
                1,
                match init {
                    Some(init) => format!("{ty} {name} = {init};"),
                    None => format!("{ty} {name} = {{}};"),
                },
            );
        }
        Ok(())
    }

    /// The single entry point, and the finished text.
    pub(super) fn kernel(&mut self, name: &str) -> Result<()> {
        let module = self.module;
        let [entry] = &module.entry_points[..] else {
            return unsupported("number of entry points", module.entry_points.len());
        };
        let info = self.info.get_entry_point(0);
        let params = self.kernel_params(info)?;
        let n_threads: u32 = entry.workgroup_size.iter().product();
        self.line(0, format!("\nKERNEL({n_threads}) {name}({}) {{", params.join(", ")));
        if uses_subgroups(entry) {
            self.line(1, format!("static_assert({n_threads} % WAVE == 0, \"whole subgroups\");"));
        }
        if let Some(size) = self.subgroup_size() {
            let refusal = format!("this kernel is for subgroups of {size}");
            self.line(1, format!("static_assert(WAVE == {size}u, \"{refusal}\");"));
        }
        self.workgroup_memory(info)?;
        for (g, global) in self.globals(info) {
            if global.space == AddressSpace::Private {
                let init = global.init.map(|e| self.constant(e)).transpose()?.unwrap_or("{}".into());
                let (ty, name) =
                    (self.type_name(global.ty)?, self.name(&NameKey::GlobalVariable(g)).to_owned());
                self.line(1, format!("{ty} {name} = {init};"));
            }
        }
        for (i, argument) in (0..).zip(&entry.function.arguments) {
            let value = built_in(entry, argument)?;
            let (ty, name) =
                (self.type_name(argument.ty)?, self.name(&NameKey::EntryPointArgument(0, i)).to_owned());
            self.line(1, format!("const {ty} {name} = {value};"));
        }
        let mut body = Body::new(&entry.function, info, Owner::Entry(0));
        self.locals(&body)?;
        self.last_statements(&mut body, &entry.function.body)?;
        self.line(0, "}");
        Ok(())
    }

    /// The size of subgroups that a kernel is made for, if it deals its work to them by the constant `SUBGROUP`.
    fn subgroup_size(&self) -> Option<u32> {
        let mut constants = self.module.constants.iter().map(|(_, constant)| constant);
        let constant = constants.find(|c| c.name.as_deref() == Some("SUBGROUP"))?;
        match self.module.global_expressions[constant.init] {
            Expression::Literal(Literal::U32(size)) => Some(size),
            _ => None,
        }
    }

    /// Buffers in the order of their slots, then values.
    fn kernel_params(&self, info: &'a FunctionInfo) -> Result<Vec<String>> {
        let mut params = Vec::new();
        for (g, global) in self.globals(info) {
            let name = self.name(&NameKey::GlobalVariable(g));
            match (global.space, &global.binding) {
                (AddressSpace::Storage { .. }, Some(at)) => {
                    params.push(((false, at.binding), self.pointer(g, global)?));
                }
                (AddressSpace::Immediate, _) => {
                    params.push(((true, 0), format!("BY_VALUE {} {name}", self.type_name(global.ty)?)));
                }
                (AddressSpace::WorkGroup | AddressSpace::Private, _) => {}
                (other, _) => return unsupported("address space", other),
            }
        }
        params.sort_by_key(|p| p.0);
        Ok(params.into_iter().map(|(_, text)| text).collect())
    }

    fn size(&self, global: &GlobalVariable) -> u32 {
        let ctx: GlobalCtx<'_> = self.module.to_ctx();
        self.module.types[global.ty].inner.size(ctx)
    }

    /// Declares workgroup memory: one array of the launch's size where it is more than may be declared statically.
    fn workgroup_memory(&mut self, info: &'a FunctionInfo) -> Result<()> {
        let shared: Vec<_> = self.globals(info).filter(|(_, g)| g.space == AddressSpace::WorkGroup).collect();
        let padded = |g: &GlobalVariable| self.size(g).next_multiple_of(SHARED_ALIGN);
        let bytes: u32 = shared.iter().map(|(_, g)| padded(g)).sum();
        let is_dynamic = bytes > self.dialect.static_shared_bytes_max;
        if is_dynamic {
            self.line(1, "extern SHARED alignas(16) u8 shared_bytes[];");
        }
        let mut at = 0;
        for (g, global) in shared {
            let (ty, name) = (self.type_name(global.ty)?, self.name(&NameKey::GlobalVariable(g)).to_owned());
            self.line(
                1,
                if is_dynamic {
                    format!("{ty}& {name} = *({ty}*)(shared_bytes + {at});")
                } else {
                    format!("SHARED {ty} {name};")
                },
            );
            at += self.size(global).next_multiple_of(SHARED_ALIGN);
        }
        Ok(())
    }
}

fn writable(global: &GlobalVariable) -> bool {
    matches!(global.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE))
}

/// Whether the kernel asks for its place in a subgroup, as every kernel with subgroup operations does.
fn uses_subgroups(entry: &EntryPoint) -> bool {
    entry.function.arguments.iter().any(|a| {
        matches!(
            a.binding,
            Some(Binding::BuiltIn(
                BuiltIn::SubgroupSize
                    | BuiltIn::SubgroupId
                    | BuiltIn::SubgroupInvocationId
                    | BuiltIn::NumSubgroups
            ))
        )
    })
}

/// The value of an id.
fn built_in(entry: &EntryPoint, argument: &FunctionArgument) -> Result<String> {
    let [x, y, z] = entry.workgroup_size;
    let n_threads = x * y * z;
    let index = match (y, z) {
        (1, 1) => "thread_x()".to_owned(),
        _ => format!("(thread_x() + {x}u * (thread_y() + {y}u * thread_z()))"),
    };
    let Some(Binding::BuiltIn(built_in)) = argument.binding else {
        return unsupported("argument", argument);
    };
    Ok(match built_in {
        BuiltIn::WorkGroupId => "vec3<u32>{group_x(), group_y(), group_z()}".into(),
        BuiltIn::NumWorkGroups => "vec3<u32>{groups_x(), groups_y(), groups_z()}".into(),
        BuiltIn::WorkGroupSize => format!("vec3<u32>{{{x}u, {y}u, {z}u}}"),
        BuiltIn::LocalInvocationIndex => index,
        BuiltIn::LocalInvocationId => "vec3<u32>{thread_x(), thread_y(), thread_z()}".into(),
        BuiltIn::GlobalInvocationId => format!(
            "vec3<u32>{{group_x() * {x}u + thread_x(), group_y() * {y}u + thread_y(), \
             group_z() * {z}u + thread_z()}}"
        ),
        BuiltIn::SubgroupSize => "WAVE".into(),
        BuiltIn::SubgroupInvocationId => format!("{index} % WAVE"),
        BuiltIn::SubgroupId => format!("{index} / WAVE"),
        BuiltIn::NumSubgroups => format!("{n_threads}u / WAVE"),
        other => return unsupported("built-in", other),
    })
}
