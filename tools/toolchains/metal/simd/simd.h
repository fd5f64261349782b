// Metal's header of types that host and device share; our kernels use none of them.
#pragma once
