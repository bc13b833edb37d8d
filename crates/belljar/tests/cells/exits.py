import sys
sys.exit()
# %%
sys.exit(3)
# %%
sys.exit(256 + 7)
# %%
sys.exit(-1)
# %%
sys.exit('bye')
# %%
sys.exit((1, 2))
# %%
raise SystemExit(True)
# %%
exit(5)
# %%
quit()
# %%
class Odd(SystemExit):
    def __str__(self): raise ValueError
raise Odd(Odd())
# %%
raise KeyboardInterrupt
# %%
raise BaseException('base')
# %%
raise GeneratorExit
# %% Variables survive all this
type(sys).__name__
