def catalogue(names, allow, exclude):
    return [n for n in names if (allow is None or n in allow) and n not in exclude]
